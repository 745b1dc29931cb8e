"""The main job on real input: every byte comes back, from every place that it can be read from."""

from __future__ import annotations

from pathlib import Path

import pytest

import offload
import seglog
from offload.operations.record_text import line_batches, to_line
from seglog import Log, LogSettings
from tests.texts import NAMES, text
from tests.worlds.remotes import s3_is_long

SMALL = LogSettings(segment_max_events=300)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    with seglog.open(tmp_path / "data", settings=SMALL) as log:
        yield log


def _append(log: Log, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(text(name))
    with path.open("rb") as stream:
        for batch in line_batches(stream, None, None, 1 << 24):
            log.topic(name).append(batch.values, unterminated=batch.unterminated)


def _joined(records: object) -> bytes:
    return b"".join(map(to_line, records))


@s3_is_long
@pytest.mark.parametrize("name", NAMES)
def test_a_log_is_byte_identical_from_hot_from_cold_and_from_a_branch(
    name: str, log: Log, remote: str, tmp_path: Path
) -> None:
    _append(log, name, tmp_path)
    topic = log.topic(name)
    assert _joined(topic.read()) == text(name)
    topic.seal()
    assert len(topic.inner.segments()) > 3
    with offload.attach(log, remote) as archive:
        archive.offload(name, drop_hot=True)
        assert topic.inner.hot_floor == topic.head_seq + 1
        assert not list((tmp_path / "data" / "topics").glob("*/*.data"))
        assert _joined(topic.read()) == text(name)

        half = topic.head_seq // 2
        restored = archive.restore(name, to="head", name="copy")
        assert restored.records == topic.head_seq
        archive.restore(name, to=f"seq:{half}", name="half")
        assert _joined(archive.read(f"{name}@copy")) == text(name)
        lines = text(name).split(b"\n")
        assert _joined(archive.read(f"{name}@half")) == b"\n".join(lines[:half]) + b"\n"


def test_what_is_deleted_is_gone_from_the_branch_it_was_deleted_on_and_from_no_other(log: Log, remote: str) -> None:
    orders = log.topic("orders")
    with offload.attach(log, remote) as archive:
        orders.append([b"a", b"b"], tag="eu")
        orders.append([b"c"], tag="us")
        orders.seal()
        archive.offload("orders", drop_hot=True)
        archive.restore("orders", to="head", name="before")
        orders.append([b"d"], tag="eu")
        deleted = archive.delete("orders", tag="eu")
        assert (deleted.records, deleted.lsn) == (3, None)
        assert [record.value for record in orders.read()] == [b"c"]
        orders.seal()
        archive.offload("orders", drop_hot=True)
        assert [record.value for record in orders.read()] == [b"c"]
        assert [record.value for record in archive.read("orders@before")] == [b"a", b"b", b"c"]
        assert [record.value for record in archive.read("orders", at="head~1")] == [b"a", b"b", b"c", b"d"]


def test_a_branch_takes_appends_of_its_own(log: Log, remote: str) -> None:
    orders = log.topic("orders")
    orders.append([b"a", b"b", b"c"])
    with offload.attach(log, remote) as archive:
        archive.restore("orders", to="seq:2", name="fix")
        fix = archive.open_for_append("orders@fix")
        assert fix.append([b"C"]) == range(3, 4)
        assert [record.value for record in archive.read("orders@fix")] == [b"a", b"b", b"C"]
        fix.seal()
        archive.offload("orders@fix", drop_hot=True)
        assert [record.value for record in archive.read("orders@fix")] == [b"a", b"b", b"C"]
        assert [record.value for record in archive.read("orders")] == [b"a", b"b", b"c"]
        assert [stored.commit.lsn for stored in archive.history.commits("orders@fix")] == [1, 1]
