"""The Spark examples of docs/start, docs/spark.md and docs/spark run, with directories in the place of buckets."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalog.format.commit import ForkPoint
from catalog.refs.state_names import Tags
from scripts.snippets import ROOT, programs
from tests.offload.samples import Sample
from tests.offload.spark.archives import NOW_MS, TopicArchive
from tests.offload.spark.session import needs_python_sources


def test_the_way_in_for_analysts_is_one_block_of_spark() -> None:
    blocks = programs()["docs/start/README.md"]
    assert ["pyspark" in block for block in blocks] == [True]


@pytest.mark.long
def test_the_commands_for_services_are_shell_and_name_the_wheel_of_this_version() -> None:
    """The services are not here: nothing else of these pages runs."""
    texts = [path.read_text() for path in sorted((ROOT / "docs" / "spark").glob("*.md"))]
    commands = [each for text in texts for each in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    assert len(commands) > len(texts)
    parsed = subprocess.run(["bash", "-n"], input="".join(commands), capture_output=True, text=True, check=False)
    assert (parsed.returncode, parsed.stderr) == (0, "")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {*re.findall(r"seglog-[\w.-]+\.whl", "".join(texts))} == {f"seglog-{version}-py3-none-any.whl"}


@pytest.mark.long
@needs_python_sources  # some of the examples write
def test_each_example_runs(spark_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))  # an example gives the driver a profile, for good
    for tenant in ("globex", "acme"):
        url = (tmp_path / tenant).as_uri()
        orders = TopicArchive(url)
        orders.add([Sample(b"one", "eu"), Sample(b"two", "eu")])
        TopicArchive(url, "orders", "rescued", ForkPoint(orders.vid, orders.lsn)).add([Sample(b"three")])
    Tags(orders.volumes).create("orders", "audit", ForkPoint(orders.vid, 1), branch="main", now_ms=NOW_MS)
    counts, pages = [], programs()
    for program in map("".join, (pages[f"docs/{page}.md"] for page in ("start/README", "spark", "spark/README"))):
        for path in ("s3://my-bucket/acme", "s3://my-bucket/copies", "s3://my-bucket/reports"):
            program = program.replace(path, (tmp_path / path.rpartition("/")[2]).as_uri())
        program = program.replace('"s3://my-bucket"', f'"{tmp_path.as_uri()}"')
        for place in ("/etc/seglog", "/checkpoints", "/lake", "/var/lib"):
            program = program.replace(f'"{place}/', f'"{tmp_path}{place}/')
        assert "s3://" not in program
        names: dict[str, Any] = {}
        exec(program, names)  # noqa: S102
        counts.append([names[name].count() for name in ("events", "rescued") if name in names])
        for query in spark_session.streams.active:
            query.processAllAvailable()
            query.stop()
    assert counts == [[2, 3], [2], [2]]
    written = spark_session.read.format("seglog").option("topic", "copy").load((tmp_path / "copies").as_uri())
    assert written.count() == 2
    assert spark_session.read.parquet(f"{tmp_path}/lake/orders").count() == 2
    assert spark_session.read.parquet(f"{tmp_path}/reports").collect() == [("eu", 2)]
