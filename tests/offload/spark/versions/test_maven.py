"""The Maven repository of `make maven`: its files, and Spark that resolves the jar from it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from offload.spark.registration import JAR
from scripts.jar import HOME
from scripts.maven import coordinates, write_repository
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.standalone import SPARK

_JOB = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.sql(f"CREATE TEMPORARY VIEW orders USING seglog OPTIONS (path '{sys.argv[1]}', topic 'orders')")
print("READ", *spark.sql("SELECT count(value), max(seq) FROM orders WHERE seq > 10").first())
spark.stop()
"""


def test_a_repository_has_the_jar_a_pom_the_sources_and_their_checksums(tmp_path: Path) -> None:
    place = write_repository(tmp_path)
    group, artifact, version = coordinates().split(":")
    assert place.relative_to(tmp_path).as_posix() == f"{group}/{artifact}/{version}"
    stem = f"{artifact}-{version}"
    files = [f"{stem}-sources.jar", f"{stem}.jar", f"{stem}.pom"]
    sums = {f"{file}.{kind}": hashlib.new(kind, (place / file).read_bytes()).hexdigest()
            for file in files for kind in ("md5", "sha1", "sha256")}  # fmt: skip
    assert sorted(path.name for path in place.iterdir()) == sorted([*files, *sums])
    assert {name: (place / name).read_text() for name in sums} == sums
    assert (place / f"{stem}.jar").read_bytes() == JAR.read_bytes()
    with zipfile.ZipFile(place / f"{stem}-sources.jar") as sources:
        assert sources.namelist()[0] == "META-INF/MANIFEST.MF"
        for name in ("seglog/spark/SeglogProvider.java", "seglog/spark/Shim3.java"):
            [file] = HOME.rglob(name)
            assert sources.read(name) == file.read_bytes()
        assert len(sources.namelist()) == len([*HOME.rglob("*.java")]) + 1
    pom = ET.fromstring((place / f"{stem}.pom").read_text())  # noqa: S314 - a file of ours
    assert [pom.findtext(name) for name in ("groupId", "artifactId", "version")] == [group, artifact, version]
    assert f"--packages {coordinates()} " in (HOME.parents[2] / "docs" / "spark.md").read_text()


def test_the_same_checkout_gives_the_same_bytes(tmp_path: Path) -> None:
    first, again = write_repository(tmp_path / "first"), write_repository(tmp_path / "again")
    (again / "left over").write_text("of an older jar")
    write_repository(tmp_path / "again")
    assert {path.name: path.read_bytes() for path in first.iterdir()} == {
        path.name: path.read_bytes() for path in again.iterdir()
    }


@pytest.mark.long
def test_spark_submit_resolves_the_jar_from_the_repository_without_a_network(tmp_path: Path) -> None:
    """The proxy of the test leads nowhere, so Spark reaches no other repository."""
    write_repository(tmp_path / "maven")
    url = (tmp_path / "remote").as_uri()
    TopicArchive(url).add([Sample(b"value")] * 100)
    (tmp_path / "job.py").write_text(_JOB)
    nowhere = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort=9" for scheme in ("http", "https"))
    settings = [f"spark.jars.ivy={tmp_path / 'ivy'}", "spark.ui.enabled=false", "spark.driver.bindAddress=127.0.0.1"]
    done = subprocess.run(
        [str(SPARK / "bin" / "spark-submit"), "--master", "local[1]", "--driver-java-options", nowhere,
         *(word for setting in settings for word in ("--conf", setting)),
         "--packages", coordinates(), "--repositories", (tmp_path / "maven").as_uri(), "job.py", url],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": f"{HOME.parents[2]}"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )  # fmt: skip
    assert "READ 90 100" in done.stdout.splitlines(), f"{done.stdout}\n{done.stderr}"
