"""A standalone cluster with two worker processes, and S3 over HTTP: jobs shipped as docs/spark.md says.

Spark protects its RPC, as a driver wants it that hands its credentials to the executors.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from catalog.format.keys import Key
from offload.spark.registration import JAR
from offload.wiring import open_store
from tests.offload.load.loads import values
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.standalone import Standalone, running_cluster
from tests.offload.spark.write_driver import PARTITIONS
from tests.s3_server import ACCESS_KEY, REGION, SECRET_KEY

ROOT = Path(__file__).parents[3]
RECORDS = 400
BARE_PYTHON = "/no/such/python"

JOB = """
import json, os, sys
from pyspark.sql import SparkSession

how, url = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
places = []
if how != "sql":
    from offload.spark import register
    assert register(spark) == ("python" if how == "zip" else "jvm")  # no class loader reads a jar in a zip file
    reader = "jvm" if how == "jvm" else "python"
    load = spark.read.format("seglog").options(topic="orders", reader=reader, minPartitions=8, verify="record")
    load.load(url).createTempView("orders")
    if how != "jvm":
        def place(_):
            import offload
            yield os.path.relpath(offload.__file__)
        places = sorted(set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(place).collect()))
else:
    options = f"path '{url}', topic 'orders', minPartitions '8', verify 'record'"
    spark.sql(f"CREATE TEMPORARY VIEW orders USING seglog OPTIONS ({options})")
[row] = spark.sql("SELECT count(value) AS n, sum(length(value)) AS size, max(seq) AS last FROM orders").collect()
store = spark.sparkContext._jsc.sc().statusStore()
executors = spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(store.executorList(True))
print("FOUND", json.dumps({"row": list(row), "places": places, "executors": len(executors) - 1}))
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    standalone: Standalone

    @property
    def master(self) -> str:
        return self.standalone.master

    @property
    def directory(self) -> Path:
        return self.standalone.directory

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env={**self.standalone.environment, **environment},
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def submit(self, how: str, url: str, *arguments: str, **environment: str) -> dict[str, Any]:
        """Run the job, and return what it found."""
        (self.directory / "job.py").write_text(JOB)
        done = self.run(*self.standalone.submit, *arguments, "job.py", how, url, **environment)
        found = [line.removeprefix("FOUND ") for line in done.stdout.splitlines() if line.startswith("FOUND ")]
        assert found, f"{done.stdout}\n{done.stderr}"
        answer = json.loads(found[0])
        assert isinstance(answer, dict)
        return answer


@pytest.fixture(scope="module")
def cluster(s3_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    keys = {
        "AWS_ENDPOINT_URL": s3_endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
    }
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": "a secret of the cluster",
        "spark.network.crypto.enabled": "true",
        **{f"spark.executorEnv.{name}": text for name, text in keys.items()},
    }
    variables = {**keys, "AWS_EC2_METADATA_DISABLED": "true"}
    with running_cluster(tmp_path_factory.mktemp("cluster"), settings, variables) as standalone:
        yield Cluster(standalone)


@pytest.fixture
def url(s3_remote: str) -> str:
    TopicArchive(s3_remote).add([Sample(b"v" * 90)] * RECORDS)
    return s3_remote


def packages(directory: Path, kind: str) -> str:
    """Return an archive of the three packages."""
    for name in ("seglog", "catalog", "offload"):
        shutil.copytree(ROOT / name, directory / "code" / name, ignore=shutil.ignore_patterns("__pycache__"))
    return shutil.make_archive(str(directory / "seglog"), kind, directory / "code")


ROW = [RECORDS, 90 * RECORDS, RECORDS]


@pytest.mark.soak(part=9)
def test_the_jvm_reader_needs_no_python_on_executors(cluster: Cluster, url: str) -> None:
    found = cluster.submit("jvm", url, PYSPARK_PYTHON=BARE_PYTHON)
    assert (found["row"], found["executors"]) == (ROW, 2)


@pytest.mark.soak(part=9)
def test_executors_without_credentials_take_those_of_the_driver_if_the_rpc_is_protected(
    cluster: Cluster, url: str, tmp_path: Path
) -> None:
    expires = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    handed = {"Version": 1, "AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET_KEY, "Expiration": expires}
    (tmp_path / "answer").write_text(json.dumps(handed))
    (tmp_path / "config").write_text(f"[default]\ncredential_process = cat {tmp_path / 'answer'}\n")
    bare = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    confs = [word for name in bare for word in ("--conf", f"spark.executorEnv.{name}=")]
    driver = {**bare, "AWS_CONFIG_FILE": str(tmp_path / "config"), "PYSPARK_PYTHON": BARE_PYTHON}
    found = cluster.submit("jvm", url, *confs, **driver)
    assert (found["row"], found["executors"]) == (ROW, 2)
    (cluster.directory / "job.py").write_text(JOB)
    done = cluster.run(
        *cluster.standalone.submit,
        *confs,
        "--conf",
        "spark.network.crypto.enabled=false",
        "job.py",
        "jvm",
        url,
        **driver,
    )
    assert "there are no AWS credentials for the JVM reader" in done.stdout, f"{done.stdout}\n{done.stderr}"


@pytest.mark.soak(part=9)
def test_damage_that_an_executor_finds_is_one_line_on_the_driver(cluster: Cluster, url: str) -> None:
    store = open_store(url)
    [key] = [Key(key) for key in store.list("") if "/segments/" in key and not key.endswith(".index")]
    body = bytearray(store.get(key))
    body[140] ^= 1
    store.put(key, bytes(body), {})
    (cluster.directory / "job.py").write_text(JOB)
    done = cluster.run(*cluster.standalone.submit, "job.py", "jvm", url)
    line = f"AnalysisException: InvalidChunk: {key} is damaged at offset 128: its checksum does not match"
    assert done.stdout.splitlines()[-1].endswith(line), f"{done.stdout}\n{done.stderr}"


@pytest.mark.soak(part=9)
def test_the_jar_alone_serves_sql(cluster: Cluster, url: str) -> None:
    assert cluster.submit("sql", url, "--jars", str(JAR))["row"] == ROW


@pytest.mark.soak(part=9)
def test_the_python_reader_comes_by_a_zip_or_by_an_archive(cluster: Cluster, url: str, tmp_path: Path) -> None:
    by_zip = cluster.submit("zip", url, "--py-files", packages(tmp_path / "zip", "zip"))
    assert by_zip["row"] == ROW
    assert all("seglog.zip" in place for place in by_zip["places"])
    archive = f"{packages(tmp_path / 'tar', 'gztar')}#code"
    by_archive = cluster.submit("archive", url, "--archives", archive, "--conf", "spark.executorEnv.PYTHONPATH=code")
    assert by_archive["row"] == ROW
    assert by_archive["places"] == ["code/offload/__init__.py"]


def doctor(cluster: Cluster, url: str, **variables: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code of `doctor --spark`, and its checks by their names."""
    command = [sys.executable, "-m", "offload", "--json", "--remote", url, "doctor", "--spark"]
    done = cluster.run(*command, "--master", cluster.master, **variables)
    return done.returncode, {check["check"]: check for check in map(json.loads, done.stdout.splitlines())}


@pytest.mark.soak(part=9)
def test_the_doctor_reaches_every_executor(cluster: Cluster, s3_remote: str) -> None:
    code, checks = doctor(cluster, s3_remote)
    assert [check["reason"] for check in checks.values() if check["outcome"] != "ok"] == []
    assert checks["jvm"]["proves"] == "2 of 2 executors"
    assert checks["python"]["proves"].startswith("2 of 2 executors with Python")
    assert code == 0


@pytest.mark.soak(part=9)
def test_the_doctor_names_the_executors_that_lack_python(cluster: Cluster, s3_remote: str) -> None:
    code, checks = doctor(cluster, s3_remote, PYSPARK_PYTHON=BARE_PYTHON)
    assert {name for name, check in checks.items() if check["outcome"] == "failed"} == {"python"}, checks
    assert BARE_PYTHON in checks["python"]["reason"]
    assert code == 1


@pytest.mark.soak(part=9)
def test_a_write_has_each_record_once_if_two_attempts_at_a_task_succeed(
    cluster: Cluster, s3_remote: str, tmp_path: Path
) -> None:
    settings = {
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.quantile": "0.5",
    }
    confs = [word for name, text in settings.items() for word in ("--conf", f"{name}={text}")]
    driver = Path(__file__).with_name("write_driver.py")
    done = cluster.run(
        *cluster.standalone.submit,
        *confs,
        str(driver),
        s3_remote,
        "slow task",
        str(tmp_path),
        "day-1",
        "200",
        PYTHONPATH=str(ROOT),
    )
    assert done.stdout.splitlines()[-1:] == ["OK"], done.stderr
    assert {path.name for path in tmp_path.iterdir()} >= {"attempt 0 began", "attempt 1 ended"}
    store = open_store(s3_remote)
    assert values(store) == [b"value %d" % number for number in range(200)]
    written = [key for key in store.list("") if "/segments/" in key and not key.endswith(".index")]
    assert len(written) == PARTITIONS + 1  # those of the slow attempt are left for GC
