"""The JVM reader through Hadoop's own S3 client, `s3a`, as a cluster has it. PySpark alone has no such client."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

import offload
import seglog
from tests.interop.maven import run_maven
from tests.s3_server import ACCESS_KEY, REGION, SECRET_KEY

_POM = Path(__file__).parents[2] / "interop" / "s3a" / "pom.xml"
_DOWNLOAD_S = 600
_RECORDS, _SEGMENTS = 2_000, 4

JOB = """
import json, os, sys
from pyspark.sql import SparkSession
from offload.spark import register
from catalog.format.keys import Key
from offload.wiring import open_store

url, jars, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.jars", jars)
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
register(spark)
frame = spark.read.format("seglog").options(topic="orders", reader="jvm", verify="record").load(url)

def told(work):
    try:
        return [list(row) for row in work().collect()]
    except Exception as error:
        return str(error).splitlines()[0]

store = open_store(url)
keys = [Key(key) for key in sorted(store.list("")) if "/segments/" in key and not key.endswith(".index")]
short, absent = keys[:2]
body = store.get(short)
store.put(short, body[: len(body) // 2], {})
store.delete(absent)
sums = ("count(value)", "sum(seq)", "sum(length(value))")
print("FOUND", json.dumps({
    "client": spark._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(
        "s3a", spark._jsc.hadoopConfiguration()).getSimpleName(),
    "all": told(lambda: frame.where("seq > 1000").selectExpr(*sums)),
    "some": told(lambda: frame.where("seq in (1001, 1500, 1777, 2000)").select("seq").orderBy("seq")),
    "short": [short, told(lambda: frame.where("seq <= 500").selectExpr(*sums))],
    "absent": [absent, told(lambda: frame.where("seq > 500 and seq <= 1000").selectExpr(*sums))],
}))
"""


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the paths of the client's jars, in the release of Hadoop that PySpark has."""
    [hadoop] = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    release = hadoop.stem.removeprefix("hadoop-client-api-")
    paths = tmp_path_factory.mktemp("s3a") / "jars"
    words = (f"-Dhadoop.version={release}", f"-Dmdep.outputFile={paths}", "dependency:build-classpath")
    run_maven(_POM, *words, within_s=_DOWNLOAD_S)
    return paths.read_text().strip().replace(":", ",")


@pytest.mark.soak(part=9)
def test_the_s3_client_of_hadoop_reads_the_same_and_tells_what_is_short_or_absent(
    jars: str, s3_endpoint: str, s3_remote: str, tmp_path: Path
) -> None:
    with seglog.open(tmp_path / "log") as log, offload.attach(log, s3_remote) as archive:
        topic = log.topic("orders")
        for first in range(0, _RECORDS, _RECORDS // _SEGMENTS):
            topic.append([b"value %d" % number for number in range(first, first + _RECORDS // _SEGMENTS)])
            topic.seal()
            archive.offload("orders")
    found = _found(s3_remote, jars, s3_endpoint, tmp_path)
    assert found["client"] == "S3AFileSystem"
    values = [b"value %d" % number for number in range(1_000, _RECORDS)]
    assert found["all"] == [[len(values), sum(range(1_001, _RECORDS + 1)), sum(map(len, values))]]
    assert found["some"] == [[1001], [1500], [1777], [2000]]
    key, told = found["short"]
    assert f"InvalidObject: {key}: it ends at byte " in told
    key, told = found["absent"]
    assert f"NoSuchObject: {key}" in told


def _found(url: str, jars: str, endpoint: str, directory: Path) -> dict[str, Any]:
    client = {
        "endpoint": endpoint,
        "endpoint.region": REGION,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": ACCESS_KEY,
        "secret.key": SECRET_KEY,
    }
    settings = json.dumps({f"spark.hadoop.fs.s3a.{name}": value for name, value in client.items()})
    command = [sys.executable, "-c", JOB, url, jars, settings]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")] or [""]
    assert line, f"{done.stdout}\n{done.stderr[-4000:]}"
    answer = json.loads(line.removeprefix("FOUND "))
    assert isinstance(answer, dict)
    return answer
