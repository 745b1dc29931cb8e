"""The wheel that a user installs, and nothing of the checkout: Spark with a local master reads in the JVM."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

JOB = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import offload, seglog
from offload.spark import register

installed, place = map(Path, sys.argv[1:])
assert Path(offload.__file__).is_relative_to(installed), offload.__file__
url = (place / "remote").as_uri()
with seglog.open(place / "data") as log, offload.attach(log, url) as archive:
    log.topic("orders").append([b"value %d" % number for number in range(100)])
    log.topic("orders").seal()
    archive.offload("orders")
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
print("SERVES", register(spark))
frame = spark.read.format("seglog").option("topic", "orders").load(url)
print("READ", frame.count(), frame.selectExpr("sum(length(value))").first()[0])
"""


@pytest.mark.soak(part=9)
def test_the_wheel_alone_reads_in_the_jvm(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", JOB, str(installed), str(tmp_path)],
        env={**environment, "PYTHONPATH": str(installed), "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.splitlines() == ["SERVES jvm", "READ 100 790"], f"{done.stdout}\n{done.stderr}"
