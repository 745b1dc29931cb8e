"""Every branch and version of randomly driven histories, seen from Spark: each reader gives what the archive reads.

The histories are those of T5, with its branches, tags, deletes, evictions, truncations, merges, GC and kills. At the
end of a history its objects are copied to a directory. One query of Spark then reads all versions there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from catalog import ForkPoint
from catalog.errors import Missing
from catalog.format.keys import Key
from catalog.refs.branch import Branches
from offload.wiring import open_store
from tests.offload.spark.queries import read
from tests.offload.spark.session import spark, spark_session
from tests.seams.archive import context_of
from tests.work import amounts, seed_of, tell
from tests.worlds.catalog_model import TOPIC, CatalogModel

__all__ = ["spark", "spark_session"]

Row = tuple[int, int, bytes, str | None, str | None]


class HistoryInSpark(CatalogModel):
    """A history whose end Spark reads, from a copy of its objects in `directory`."""

    def __init__(self, session: SparkSession, directory: Path) -> None:
        super().__init__()
        self.session = session
        self.directory = directory
        self.versions = self.rows = 0

    def begin(self, drawn: str) -> None:
        """Offload the first record, so that each history has a version that Spark can read."""
        super().begin(drawn)
        self.log.topic(TOPIC).seal()
        self.archive.offload(TOPIC)
        self._remember(TOPIC)

    def look_back(self) -> None:
        url = self.directory.as_uri()
        self._copy_objects(url)
        states = [state for name in sorted(self.lines) for state in self._states(name)]
        expected = [list(self._rows(point)) for _, point in states]
        loads = [options for options, _ in states]
        assert [_rows_in_python(url, options) for options in loads] == expected
        assert _rows_in_spark(self.session, url, loads, "jvm") == expected
        newest = [number for number, options in enumerate(loads) if "versionAsOf" not in options]
        found = _rows_in_spark(self.session, url, [loads[number] for number in newest], "python")
        assert found == [expected[number] for number in newest]
        self.versions += len(states)
        self.rows += sum(map(len, expected))

    def _copy_objects(self, url: str) -> None:
        remote = open_store(url)
        for key in map(Key, self.ground.list("")):
            remote.put(key, self.ground.get(key), self.ground.head(key).metadata)
        remote.close()

    def _states(self, name: str) -> list[tuple[dict[str, str], ForkPoint]]:
        """Return the options and the point of each version of a branch, and of its newest state.

        A commit of a parent has no version in the branch if a commit of the branch has the same LSN.
        """
        if self.lines[name].deleted_ms is not None:
            return []
        branch = name.partition("@")[2] or "main"
        volumes = context_of(self.archive).volumes
        try:
            vid = Branches(volumes).resolve(TOPIC, branch)
        except Missing:
            return []  # no record was offloaded yet
        options = {"topic": TOPIC, "branch": branch, "startingSeq": "earliest", "pinSeconds": "0"}
        points: dict[int, ForkPoint] = {}
        for each in volumes.history(vid):  # newest first, so the branch's own commits come before its parents'
            points.setdefault(each.commit.lsn, each.point())
        past = [({**options, "versionAsOf": str(lsn)}, point) for lsn, point in points.items()]
        return [*past, (options, ForkPoint(vid, volumes.newest_lsn(vid)))]

    def _rows(self, point: ForkPoint) -> list[Row]:
        return [(each.seq, each.ts_ms, each.value, each.tag, each.node) for each in self._records_at(point)]


def _rows_in_python(url: str, options: dict[str, str]) -> list[Row]:
    return [
        (row["seq"], round(row["timestamp"].timestamp() * 1000), row["value"], row["tag"], row["node"])
        for row in read(url, **options)
    ]


def _rows_in_spark(spark: SparkSession, url: str, loads: Sequence[dict[str, str]], reader: str) -> list[list[Row]]:
    """Return the rows of each load, in Spark's order. One query reads all of them."""

    def numbered(number: int, options: dict[str, str]) -> DataFrame:
        frame = spark.read.format("seglog").options(**options, reader=reader).load(url)
        return frame.selectExpr(f"{number} AS n", "seq", "unix_millis(timestamp) AS ms", "value", "tag", "node")

    found: list[list[Row]] = [[] for _ in loads]
    if loads:
        frames = [numbered(number, options) for number, options in enumerate(loads)]
        for row in reduce(DataFrame.union, frames).collect():
            found[row.n].append((row.seq, row.ms, bytes(row.value), row.tag, row.node))
    return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setattr("catalog.objects.settled_writes.backoff_s", lambda _: 0.0)


@pytest.mark.long
@amounts(2, soak=60, part=9)
def test_every_version_of_every_branch_is_what_the_archive_reads(
    spark: SparkSession, tmp_path: Path, amount: int
) -> None:
    drawn, versions, rows = seed_of("T5 in Spark"), 0, 0
    for number in range(amount):
        history = HistoryInSpark(spark, tmp_path / f"history-{number}")
        history.run(f"{drawn} {number}", steps=40)
        versions, rows = versions + history.versions, rows + history.rows
    tell(f"{amount} histories, {versions} versions, {rows} rows")
    assert versions > amount
