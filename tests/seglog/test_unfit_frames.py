"""A frame or manifest with a sound checksum that recovery cannot apply is damage with a place, and no other error."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_hexdigest

import seglog
from seglog import Corrupt, FileCorrupt, LogSettings, SeglogError, WarmStoreRequired
from seglog.engine.work_thread import InCaller
from seglog.format.frame import FrameType, encode
from tests.faults.files import UnsyncedFiles

NAME = "wal-0000000000000001.log"
CONFIG = {
    "attributes": {},
    "cap_bytes": None,
    "cap_records": None,
    "discard": "old",
    "durability": "fsync",
    "keep_history": False,
    "ttl_ms": None,
}
CREATE = {"config": CONFIG, "epoch": 1, "first_seq": 1, "name": "other"}
DELETE = {"before": 3, "op": 2, "tag": None}
UNDELETE = {"evict_floor": None, "op": 2, "seqs": [3, 2]}
FLOORS = {"evict_floor": 2, "evict_from": 1}
NO_WHOLES: tuple[object, ...] = ("1", 1.5, True, None, -1, 2**64, [1], {})
DEEP = b"[" * 100_000


def _open(directory: Path) -> seglog.Log:
    return seglog.open(directory, settings=LogSettings(wal_file_bytes=4096), files=UnsyncedFiles(), upkeep=InCaller)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a killed process. Topic 1 has five records in a segment, five in the WAL, and one delete."""
    home = tmp_path_factory.mktemp("left")
    log = _open(home / "live")
    log.topic("orders").append([b"x"] * 5, tag="eu")
    log.topic("orders").seal()
    log.topic("orders").append([b"y"] * 5)
    log.topic("orders").delete(before=2)
    shutil.copytree(home / "live", home / "left")
    log.close()
    return home / "left"


def _end(wal: bytes) -> int:
    position = 0
    while int.from_bytes(wal[position : position + 4], "little"):
        position += 4 + int.from_bytes(wal[position : position + 4], "little")
    return position


def _with_frame(left: Path, directory: Path, frame: bytes) -> int:
    """Copy `left`, write the frame after the last frame of the WAL, and return its offset."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(left, directory)
    path = directory / "wal" / NAME
    wal = path.read_bytes()
    end = _end(wal)
    path.write_bytes(wal[:end] + frame + wal[end + len(frame) :])
    return end


def _bodies() -> Iterator[tuple[str, bytes]]:
    def named(kind: FrameType, body: dict[str, Any], changes: dict[str, tuple[object, ...]]) -> Iterator[Any]:
        for key, values in changes.items():
            for value in values:
                yield kind.name, json.dumps({**body, key: value}).encode()
            yield kind.name, json.dumps({name: part for name, part in body.items() if name != key}).encode()
        for raw in (b"", b"{", b"[]", b"7", b'"x"', b"null", b"{}", b"\xff", b"NaN", DEEP, b'{"config":' + DEEP):
            yield kind.name, raw

    configs: tuple[object, ...] = (
        7, [], "x", None, {}, {**CONFIG, "durability": []}, {**CONFIG, "durability": "sync"}, {**CONFIG, "ttl_ms": 0},
        {**CONFIG, "keep_history": 1}, {**CONFIG, "attributes": [["a", "b"]]}, {**CONFIG, "attributes": {"a": 1}},
        {**CONFIG, "discard": []}, {**CONFIG, "cap_bytes": 1e9},
    )  # fmt: skip
    names = (7, None, "", "../x", "a b", ["x"], "\ud800", "a\n")
    yield from named(
        FrameType.TOPIC_CREATE,
        CREATE,
        {"config": configs, "epoch": (0, *NO_WHOLES), "first_seq": (0, *NO_WHOLES), "name": names},
    )
    yield from named(FrameType.CONFIG_UPDATE, {"config": CONFIG}, {"config": configs})
    wholes = tuple(value for value in NO_WHOLES if value is not None)
    yield from named(
        FrameType.DELETE,
        DELETE,
        {"before": wholes, "op": (0, 1, 3, *NO_WHOLES), "tag": (7, True, ["eu"], {}, "\ud800")},
    )
    yield from named(FrameType.DELETE, {**DELETE, "evict_from": 1}, {"evict_from": (0, 4, 99, *NO_WHOLES)})
    yield from named(
        FrameType.EVICT_WATERMARK, FLOORS, {"evict_floor": (0, 99, *NO_WHOLES), "evict_from": (0, 3, *NO_WHOLES)}
    )
    yield from named(
        FrameType.UNDELETE,
        UNDELETE,
        {"evict_floor": wholes, "op": (0, 1, 3, *NO_WHOLES), "seqs": ([], [3], [0, 2], [4, 1], [3, 9], ["3", 1])},
    )
    yield from named(FrameType.TRUNCATE, {"epoch": 2}, {"epoch": (0, 1, *NO_WHOLES)})
    yield from named(FrameType.TOPIC_DELETE, {"epoch": 1}, {"epoch": (2, 2**63, *NO_WHOLES)})


#: A body that stays valid without `evict_from`: only an eviction has that key.
FINE = {(FrameType.DELETE.name, json.dumps(DELETE).encode())}
SEQS = {"DELETE": 10, "EVICT_WATERMARK": 3, "TRUNCATE": 8, "UNDELETE": 3}


def test_a_body_that_does_not_fit_is_damage_at_its_frame(left: Path, tmp_path: Path) -> None:
    directory, tried = tmp_path / "data", 0
    for kind, body in _bodies():
        if (kind, body) in FINE:
            continue
        topic_id = 2 if kind == "TOPIC_CREATE" else 1
        frame = encode(FrameType[kind], topic_id=topic_id, seq=SEQS.get(kind, 0), ts_ms=2**41, data=body)
        offset = _with_frame(left, directory, frame)
        with pytest.raises(FileCorrupt) as caught:
            _open(directory).close()
        place = (caught.value.path, caught.value.offset, caught.value.exit_code)
        assert place == (directory / "wal" / NAME, offset, 5), (kind, body[:200])
        tried += 1
    assert tried > 150


PLACES = {
    "of a topic that is not there": (FrameType.CONFIG_UPDATE, 7, 0, {"config": CONFIG}),
    "a delete of a topic that is not there": (FrameType.DELETE, 7, 10, DELETE),
    "an eviction of a topic that is not there": (FrameType.EVICT_WATERMARK, 7, 3, FLOORS),
    "a truncation of a topic that is not there": (FrameType.TRUNCATE, 7, 3, {"epoch": 2}),
    "an undelete of a topic that is not there": (FrameType.UNDELETE, 7, 3, UNDELETE),
    "an undelete above the head": (FrameType.UNDELETE, 1, 3, {**UNDELETE, "seqs": [3, 9]}),
    "a deletion of a topic that is not there": (FrameType.TOPIC_DELETE, 7, 0, {"epoch": 1}),
    "a head of a topic that is not there": (FrameType.HEAD_WATERMARK, 7, 11, None),
    "a delete above the head": (FrameType.DELETE, 1, 11, DELETE),
    "an eviction of a tag": (FrameType.DELETE, 1, 10, {**DELETE, "tag": "eu", "evict_from": 1}),
    "floors above the head": (FrameType.EVICT_WATERMARK, 1, 99, FLOORS),
    "floors above where live records begin": (FrameType.EVICT_WATERMARK, 1, 1, FLOORS),
    "a truncation above the head": (FrameType.TRUNCATE, 1, 12, {"epoch": 2}),
    "a truncation at no record": (FrameType.TRUNCATE, 1, 0, {"epoch": 2}),
    "a head below": (FrameType.HEAD_WATERMARK, 1, 3, None),
    "a head that no topic reaches": (FrameType.HEAD_WATERMARK, 1, 2**63, None),
    "a topic without an id": (FrameType.TOPIC_CREATE, 0, 0, CREATE),
    "a topic with the last id": (FrameType.TOPIC_CREATE, 2**64 - 1, 0, CREATE),
    "a topic that is there": (FrameType.TOPIC_CREATE, 1, 0, CREATE),
    "a topic with the name of another": (FrameType.TOPIC_CREATE, 2, 0, {**CREATE, "name": "orders"}),
    "a record of a topic that is not there": (FrameType.APPEND, 7, 1, None),
    "a record behind a gap": (FrameType.APPEND, 1, 12, None),
}


@pytest.mark.parametrize("what", PLACES)
def test_a_frame_that_cannot_be_where_it_is_is_damage(left: Path, tmp_path: Path, what: str) -> None:
    kind, topic_id, seq, body = PLACES[what]
    data = b"" if body is None else json.dumps(body).encode()
    frame = encode(kind, topic_id=topic_id, seq=seq, ts_ms=2**41, data=data)
    offset = _with_frame(left, tmp_path / "data", frame)
    with pytest.raises(FileCorrupt) as caught:
        _open(tmp_path / "data").close()
    if what == "a topic with the name of another":  # any shard may delete the other topic, so recovery checks last
        assert "there twice" in caught.value.reason
    else:
        assert (caught.value.path, caught.value.offset) == (tmp_path / "data" / "wal" / NAME, offset)


def test_a_topic_may_have_had_any_number_of_ephemeral_records_and_no_other(left: Path, tmp_path: Path) -> None:
    create = encode(FrameType.TOPIC_CREATE, topic_id=2, seq=0, ts_ms=2**41, data=json.dumps(CREATE).encode())
    head = encode(FrameType.HEAD_WATERMARK, topic_id=2, seq=2**32, ts_ms=2**41)
    _with_frame(left, tmp_path / "data", create + head)
    for last in (2**32 + 1, 2**32 + 2):
        with _open(tmp_path / "data") as log:
            assert log.topic("other").append([b"x"]) == range(last, last + 1)
            assert [record.seq for record in log.topic("other").read()] == [*range(2**32 + 1, last + 1)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(0, 12) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
KEYS = ("config", "epoch", "first_seq", "name", "before", "op", "tag", "evict_from", "evict_floor")
BODY = JSON | st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, JSON | st.just(CONFIG) | st.integers(0, 12)))
# Not from 10,000 to 2**32: recovery makes a row for each record that a frame calls lost, so it would take minutes.
FRAME_SEQS = st.integers(0, 12) | st.integers(0, 10_000) | st.integers(2**32, 2**64 - 1)
KINDS = [kind for kind in FrameType if kind not in (FrameType.APPEND, FrameType.SYNC_MARK)]


def _is_opened_or_damaged(directory: Path) -> None:
    """Check that the opening, and calls on the opened log, raise only our own errors."""
    try:
        log = _open(directory)
    except (Corrupt, WarmStoreRequired):
        return
    with log:
        for name in log.topics():
            try:
                list(log.topic(name).read(gaps=True))
                log.topic(name).append([b"z"])
                log.topic(name).delete(before=2)
            except SeglogError:
                continue
    _open(directory).close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(KINDS), st.integers(0, 3), FRAME_SEQS, BODY)
def test_whatever_a_body_says_only_our_errors_come(
    left: Path, tmp_path: Path, kind: FrameType, topic_id: int, seq: int, body: object
) -> None:
    frame = encode(kind, topic_id=topic_id, seq=seq, ts_ms=2**41, data=json.dumps(body).encode())
    _with_frame(left, tmp_path / "data", frame)
    _is_opened_or_damaged(tmp_path / "data")


def _manifest(directory: Path) -> Path:
    return max((directory / "meta").glob("snapshot.*.json"))


def _places(value: object, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every nested value, including the value itself."""
    yield at
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from _places(part, (*at, key))


def _put(value: Any, at: tuple[Any, ...], new: object) -> Any:
    if not at:
        return new
    copy = value.copy()
    copy[at[0]] = _put(value[at[0]], at[1:], new)
    return copy


def _write_manifest(left: Path, directory: Path, value: object) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(left, directory)
    body = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    _manifest(directory).write_bytes(body + b"\n" + xxh3_64_hexdigest(body).encode() + b"\n")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_a_snapshot_says_only_our_errors_come(left: Path, tmp_path: Path, data: st.DataObject) -> None:
    whole = json.loads(_manifest(left).read_bytes().split(b"\n")[0])
    at = data.draw(st.sampled_from(sorted(_places(whole), key=repr)))
    _write_manifest(left, tmp_path / "data", _put(whole, at, data.draw(JSON)))
    _is_opened_or_damaged(tmp_path / "data")


@pytest.mark.parametrize("value", ["x", 1.5, True, -1, 2**64, [], {}], ids=repr)
def test_no_number_of_a_snapshot_is_anything_else(left: Path, tmp_path: Path, value: object) -> None:
    whole = json.loads(_manifest(left).read_bytes().split(b"\n")[0])
    for at in _places(whole):
        found: Any = whole
        for key in at:
            found = found[key]
        if type(found) is not int or at == ("format",):
            continue
        _write_manifest(left, tmp_path / "data", _put(whole, at, value))
        with pytest.raises(FileCorrupt) as caught:
            _open(tmp_path / "data").close()
        assert caught.value.path == _manifest(tmp_path / "data"), at
