"""Spark Connect: a server as `start-connect-server.sh` starts it, and a client in another process.

The lock file lacks two of the packages that a client needs, so pip brings them into build/spark-connect.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from offload.spark.registration import JAR
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.session import OF_A_SHORT_RUN, needs_python_sources
from tests.offload.spark.session import SPARK as VERSION
from tests.offload.spark.standalone import SPARK, await_port, free_port

pytestmark = pytest.mark.long
_ROOT = Path(__file__).parents[4]
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
#: pip's pyspark of 3.5 has no server. Its documents name the package; 3.5.5 is the newest of it.
_PACKAGES = ["--packages", "org.apache.spark:spark-connect_2.12:3.5.5", "--conf", f"spark.jars.ivy={_ROOT}/build/ivy"]

_CLIENT = """
import contextlib, io, json, sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from offload.spark import register

_, address, url, place = sys.argv
spark = SparkSession.builder.remote(address).getOrCreate()
found = {"serves": [register(spark), register(spark)]}

def refused(call):
    try:
        return call()
    except PySparkException as error:
        return str(error)

def load(topic):
    return spark.read.format("seglog").option("topic", topic).load(url)

orders = load("orders")
with contextlib.redirect_stdout(io.StringIO()) as plan:
    orders.where("seq > 290").explain()
found["plan"] = plan.getvalue()
found["filter"] = [[row.seq, row.value.decode()] for row in orders.where("seq > 298").collect()]
found["count"] = orders.count()
in_python = spark.read.format("seglog").options(topic="orders", reader="python")
found["python"] = refused(lambda: in_python.load(url).count())
found["missing"] = refused(lambda: load("nothing").count())

rows = spark.range(0, 10, 1, 2).selectExpr("cast(id as string) value")
save = lambda frame: frame.write.format("seglog").option("topic", "copy").mode("append").save(url)
found["two partitions"] = refused(lambda: save(rows))
found["one partition"] = refused(lambda: save(rows.coalesce(1)))
if found["one partition"] is None:
    found["copy"] = [[row.seq, row.value.decode()] for row in load("copy").orderBy("seq").collect()]

if found["serves"][0] == "jvm":
    spark.sql(f"CREATE TEMPORARY VIEW orders USING seglog OPTIONS (path '{url}', topic 'orders')")
    found["sql"] = list(spark.sql("SELECT count(*), max(seq) FROM orders").first())

    def follow(name, columns, sink, target, **options):
        stream = spark.readStream.format("seglog").options(topic="orders", columns=columns).load(url)
        to = stream.writeStream.format(sink).options(checkpointLocation=f"{place}/checkpoint-{name}", **options)
        to.trigger(availableNow=True).start(target).awaitTermination()

    follow("lake", "topic,seq,value", "parquet", f"{place}/lake")
    found["lake"] = list(spark.read.parquet(f"{place}/lake").selectExpr("count(*)", "max(seq)").first())
    if "copy" in found:
        follow("topic", "value", "seglog", url, topic="streamed")
        found["streamed"] = load("streamed").count()
print("FOUND", json.dumps(found, default=int))  # pyspark 3.5 counts in numpy
spark.stop()
"""


def _clients_packages() -> Path:
    """Return the folder of the packages that the lock file lacks."""
    folder = _ROOT / "build" / "spark-connect"
    if not list(folder.glob("googleapis_common_protos-*.dist-info")):
        packages = [f"grpcio-status=={importlib.metadata.version('grpcio')}", "googleapis-common-protos"]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"pip reaches no registry that has the packages: {done.stderr.splitlines()[-1]}")
    return folder


@contextmanager
def _server(directory: Path, *arguments: str) -> Iterator[str]:
    """Start a server, and give its address."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": OF_A_SHORT_RUN,
    }
    conf = [word for name, text in settings.items() for word in ("--conf", f"{name}={text}")]
    submit = [str(SPARK / "bin" / "spark-submit"), "--class", _SERVER, "--master", "local[2]"]
    command = [*submit, *(_PACKAGES if VERSION < (4, 0) else []), *conf, *arguments]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with (directory / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log)
    try:
        await_port(port)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _told(directory: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """Return what a client of a server with these arguments found, and what it logged."""
    packages = _clients_packages()
    url = (directory / "remote").as_uri()
    TopicArchive(url).add([Sample(b"value %d" % number) for number in range(1, 301)])
    path = os.pathsep.join([str(packages), str(_ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    with _server(directory, *arguments) as address:
        done = subprocess.run(
            [sys.executable, "-c", _CLIENT, address, url, str(directory)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    found = [line.removeprefix("FOUND ") for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert found, f"{done.stdout}\n{done.stderr}\n{(directory / 'server.log').read_text()[-3000:]}"
    answer = json.loads(found[0])
    assert isinstance(answer, dict)
    return answer, done.stderr


def test_the_reader_of_the_jvm_serves_clients_of_a_server_that_has_the_jar(tmp_path: Path) -> None:
    found, _ = _told(tmp_path, "--jars", str(JAR))
    assert found["serves"] == ["jvm", "jvm"]
    assert "BatchScan seglog[" in found["plan"]
    assert '"column":"seq","op":"gt","values":[290]' in found["plan"]
    assert found["filter"] == [[299, "value 299"], [300, "value 300"]]
    assert (found["count"], found["sql"], found["lake"]) == (300, [300, 300], [300, 300])
    assert "NoSuchTopic: no topic nothing in " in found["missing"]
    if VERSION < (4, 0):
        assert all("NotInstalled: " in found[name] for name in ("python", "one partition", "two partitions"))
        return
    assert (found["python"], found["one partition"], found["two partitions"]) == (300, None, None)
    numbers = [str(number) for number in range(10)]
    assert found["copy"] == [[seq, value] for seq, value in enumerate([*numbers, *numbers], start=1)]
    assert found["streamed"] == 300


@needs_python_sources
def test_without_the_jar_the_reader_in_python_serves_clients_and_one_line_says_so(tmp_path: Path) -> None:
    found, log = _told(tmp_path)
    assert found["serves"] == ["python", "python"]
    assert "because this session of Spark Connect has no jar: start its server with --jars" in log
    assert "(Python)" in found["plan"]
    assert found["filter"] == [[299, "value 299"], [300, "value 300"]]
    assert (found["count"], found["python"]) == (300, 300)
    assert "NoSuchTopic: no topic nothing in " in found["missing"]
    assert "the rows of each partition were not counted" in found["two partitions"]
    assert found["one partition"] is None
    assert found["copy"] == [[seq, str(seq - 1)] for seq in range(1, 11)]
