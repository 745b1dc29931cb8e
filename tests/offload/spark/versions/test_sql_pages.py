"""Statements of Iceberg's and Delta's pages about Spark SQL, through `spark-sql --packages`, as an analyst starts it.

They are as those pages have them, but for names, columns and times. Nothing registers the source in Python here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from catalog import Branches, ForkPoint, Volumes
from catalog.refs.state_names import Tags
from offload.load import LoadRequest
from offload.wiring import open_store
from scripts.jar import HOME
from scripts.maven import coordinates, write_repository
from tests.offload.load.loads import load, values
from tests.offload.spark.catalogs import READ_ONLY
from tests.offload.spark.session import needs_python_sources
from tests.offload.spark.standalone import SPARK

DAY_MS = 86_400_000
TIMES_MS = (1_699_000_000_000, 1_699_500_000_000, 1_700_000_000_000)
SHOWN = ("2023-11-03 08:26:40", "2023-11-09 03:20:00", "2023-11-14 22:13:20")
ALL = [f"orders\t{n}\t{shown}\tNULL\tNULL\t{'abc'[n - 1]}\t{n}" for n, shown in enumerate(SHOWN, 1)]
COLUMNS = ["topic", "seq", "timestamp", "node", "tag", "value", "lsn"]

#: Statements, and the lines that each of them prints: all, or their number.
STATEMENTS: list[tuple[str, Sequence[str] | int]] = [
    # Iceberg: queries
    ("SELECT * FROM acme.orders", ALL),
    ("SELECT * FROM acme.orders TIMESTAMP AS OF '2023-11-10 01:21:00'", ALL[:2]),
    ("SELECT * FROM acme.orders VERSION AS OF 2", ALL[:2]),
    ("SELECT * FROM acme.orders VERSION AS OF 'historical-snapshot'", ALL[:1]),
    ("SELECT * FROM acme.orders FOR SYSTEM_TIME AS OF '2023-11-10 01:21:00'", ALL[:2]),
    ("SELECT * FROM acme.orders FOR SYSTEM_VERSION AS OF 2", ALL[:2]),
    ("SELECT * FROM acme.orders FOR SYSTEM_VERSION AS OF 'historical-snapshot'", ALL[:1]),
    ("SELECT * FROM acme.orders TIMESTAMP AS OF 1699600000", ALL[:2]),
    ("SELECT * FROM acme.orders FOR SYSTEM_TIME AS OF 1699600000", ALL[:2]),
    ("SELECT * FROM acme.orders.`branch_audit-branch`", 4),
    ("SELECT * FROM acme.orders.`tag_historical-snapshot`", ALL[:1]),
    ("SELECT * FROM acme.orders.history", 3),
    (
        "select h.timestamp, s.first_seq, h.lsn, h.kind from acme.orders.history h "
        "join acme.orders.segments s on h.lsn = s.lsn order by timestamp",
        [f"{shown}\t{n}\t{n}\toffload" for n, shown in enumerate(SHOWN, 1)],
    ),
    # Iceberg: getting started, DDL and writes
    ("SELECT count(1) as count, tag FROM acme.orders GROUP BY tag", ["3\tNULL"]),
    ("INSERT INTO acme.events SELECT value, tag FROM acme.orders WHERE length(value) = 1 AND seq > 2", []),
    ("INSERT INTO acme.orders.`branch_audit-branch` (value, tag) VALUES ('e', 'new'), ('f', NULL)", []),
    ("SELECT value, tag FROM acme.orders.`branch_audit-branch` WHERE seq > 4", ["e\tnew", "f\tNULL"]),
    ("USE acme", []),
    ("SHOW TABLES", 2),
    ("DESCRIBE TABLE orders", 7),
    ("SELECT count(*) FROM orders.branches", ["2"]),
    # Delta: batch reads and writes
    ("SELECT * FROM orders TIMESTAMP AS OF '2023-11-10T01:21:00.000Z'", ALL[:2]),
    ("SELECT count(*) FROM events TIMESTAMP AS OF date_sub(current_date(), 1)", ["2"]),
    ("SELECT count(*) FROM events TIMESTAMP AS OF current_timestamp() - interval 48 hours", ["2"]),
    (
        "SELECT count(distinct value) - (SELECT count(distinct value) FROM events "
        "TIMESTAMP AS OF date_sub(current_date(), 7)) FROM events",
        ["2"],
    ),
    ("CREATE OR REPLACE TEMPORARY VIEW more_events AS SELECT 'more' AS value", []),
    ("INSERT INTO events SELECT * FROM more_events", []),
    (
        "INSERT INTO events SELECT value, tag FROM events TIMESTAMP AS OF date_sub(current_date(), 1) "
        "WHERE value = cast('lost' AS binary)",
        [],
    ),
    ("SELECT max(seq), count(*) FROM events", ["6\t6"]),
    ("SHOW COLUMNS IN orders", COLUMNS),
    ("TABLE orders.tags", 1),
]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return a remote with a topic of three commits in 2023, a tag and a branch, and one of the last days."""
    url = (tmp_path / "remote").as_uri()
    store, now_ms = open_store(url), round(time.time() * 1000)
    for value, at_ms in zip((b"a", b"b", b"c"), TIMES_MS, strict=True):
        load(store, [[value]], LoadRequest("orders"), at_ms)
    load(store, [[b"d"]], LoadRequest("orders", branch="audit-branch"), TIMES_MS[-1])
    point = ForkPoint(Branches(Volumes(store)).resolve("orders"), 1)
    Tags(Volumes(store)).create("orders", "historical-snapshot", point, branch="main", now_ms=now_ms, message="")
    load(store, [[b"first", b"lost"]], LoadRequest("events"), now_ms - 10 * DAY_MS)
    load(store, [[b"new"]], LoadRequest("events"), now_ms - 60_000)
    return url


@needs_python_sources
@pytest.mark.long
def test_statements_of_iceberg_and_delta_run_in_spark_sql(tmp_path: Path, url: str) -> None:
    """The proxy leads nowhere, so that Spark reaches no other repository."""
    write_repository(tmp_path / "maven")
    lines = [f"SELECT '#';\n{statement};" for statement, _ in STATEMENTS]
    (tmp_path / "pages.sql").write_text("\n".join([*lines, "SELECT '#';", "DELETE FROM orders WHERE seq = 1;"]))
    nowhere = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort=9" for scheme in ("http", "https"))
    settings = {
        "spark.jars.ivy": tmp_path / "ivy",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalog.acme": "seglog.spark.SeglogCatalog",
        "spark.sql.catalog.acme.url": url,
    }
    done = subprocess.run(
        [str(SPARK / "bin" / "spark-sql"), "--master", "local[1]", "--driver-java-options", nowhere,
         *(word for name, text in settings.items() for word in ("--conf", f"{name}={text}")),
         "--packages", coordinates(), "--repositories", (tmp_path / "maven").as_uri(), "-f", "pages.sql"],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": f"{HOME.parents[2]}"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )  # fmt: skip
    printed: list[list[str]] = []
    for line in done.stdout.splitlines():
        printed.append([]) if line == "#" else printed[-1].append(line)
    assert len(printed) == len(STATEMENTS) + 1, f"{done.stdout}\n{done.stderr[-6000:]}"
    for (statement, expected), found in zip(STATEMENTS, printed, strict=False):
        assert (len(found) if isinstance(expected, int) else found) == expected, statement
    assert done.returncode != 0
    assert READ_ONLY in done.stderr.splitlines()
    assert values(open_store(url), "events") == [b"first", b"lost", b"new", b"c", b"more", b"lost"]
    assert len(STATEMENTS) >= 25
