"""The snapshot of everything that is not in the WAL or in segment files: meta/snapshot.<16 digits>.json.

    body     canonical JSON: {"deleted": [...], "doomed": [...], "epoch_floor", "format": 1, "next_topic_id",
             "topics": [...], "wal": [{"file", "offset", "ordinal"}, ...]}
    newline  0x0A
    check    XXH3-64 of the body, 16 hex digits
    newline  0x0A

S1  It is the state after all WAL frames before (file, offset), and of none after: recovery replays from there. There is
    one such place for each shard, so it says how many shards there are. It
    holds what the source's CheckpointMark frames hold, and there is one truth about how far segments go. The one
    exception is a topic with `is_ahead`: it is as right after the TRUNCATE frame, further on, that has its epoch.
S2  It is written whole or not at all (`replace_atomically`), so an invalid newest snapshot is damage, never a torn
    write: `FileCorrupt`, and no silent return to an older one, which would bring deleted records back.
S3  Segment files are what it says: bytes past the active segment's lengths, and files past it, are of a checkpoint that
    did not come to its end. They are derivable from the WAL.
S4  `deleted` are ids of deleted topics whose directories may still be there; `epoch_floor` is the highest epoch that
    any deleted topic had, so that the next one of its name has a higher one.
S5  `cold` of a topic are its segments that are in the cold store, as [first seq, last seq, bytes of data, first time,
    last time, XXH3-64 of the .idx]: this is the pointer that a relocation flips, and opening asks no store. `cold_ops`
    are the deletes by tag that may reach them and are not in their flags.
S6  `doomed` are [topic id, first seq] of segments that a cold store may still have and nobody needs.
S7  `dead` are the hot segments with deleted records, each as [first seq, records with the flag, their bytes]. The .idx
    has to agree with the second (G4 of seglog.segment); the third may be higher than what is still in .data.

Source: topics engine architecture, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_hexdigest

from seglog import canonical
from seglog.config import TopicConfig
from seglog.deletes import DeleteOp
from seglog.errors import FileCorrupt, FormatUnsupported, SeglogError
from seglog.files import Files, replace_atomically
from seglog.floors import Floors
from seglog.layout import Layout, number_in
from seglog.open_file import OpenFile
from seglog.segment import SegmentInfo

__all__ = [
    "ActiveMeta",
    "DeadMeta",
    "Snapshot",
    "TopicMeta",
    "WalPosition",
    "decode_snapshot",
    "encode_snapshot",
    "load",
    "numbers",
    "store",
]

_FORMAT = 1
_KEPT = 2
_CHECK_BYTES = 18


@dataclass(frozen=True, slots=True)
class WalPosition:
    """`offset` in the WAL file `file`; `ordinal` is that of the frame there, among all of the shard ever written."""

    file: int
    offset: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class ActiveMeta:
    """How far the active segment goes."""

    first_seq: int
    records: int
    data_bytes: int


@dataclass(frozen=True, slots=True)
class DeadMeta:
    """Of a segment with deleted records: how many have the flag, and their bytes in .data."""

    first_seq: int
    records: int
    data_bytes: int


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """`sealed_seq` is the highest sealed one, `first_seq - 1` before there is any; `ops` are the listed deletes.

    `head_seq`: what is above the segments were ephemeral records, and their seqs are not used again.
    """

    topic_id: int
    name: str
    epoch: int
    config: TopicConfig
    first_seq: int
    hot_floor: int
    sealed_seq: int
    active: ActiveMeta | None
    head_seq: int
    last_ts_ms: int
    next_op: int
    ops: tuple[DeleteOp, ...]
    floors: Floors = field(default_factory=Floors)
    is_ahead: bool = False
    cold: tuple[SegmentInfo, ...] = ()
    cold_ops: tuple[DeleteOp, ...] = ()
    dead: tuple[DeadMeta, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    next_topic_id: int
    topics: tuple[TopicMeta, ...]
    wal: tuple[WalPosition, ...]
    deleted: tuple[int, ...] = ()
    epoch_floor: int = 0
    doomed: tuple[tuple[int, int], ...] = ()


def encode_snapshot(snapshot: Snapshot) -> bytes:
    body = canonical.encode(
        {
            "deleted": list(snapshot.deleted),
            "doomed": [list(key) for key in snapshot.doomed],
            "epoch_floor": snapshot.epoch_floor,
            "format": _FORMAT,
            "next_topic_id": snapshot.next_topic_id,
            "topics": [_topic_to_json(topic) for topic in snapshot.topics],
            "wal": [{"file": each.file, "offset": each.offset, "ordinal": each.ordinal} for each in snapshot.wal],
        }
    )
    return body + b"\n" + xxh3_64_hexdigest(body).encode() + b"\n"


def decode_snapshot(raw: bytes, path: Path) -> Snapshot:
    """`path` is for the errors: `FileCorrupt`, `FormatUnsupported`."""
    body, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
    if check != b"\n" + xxh3_64_hexdigest(body).encode() + b"\n":
        raise FileCorrupt(path, 0, "checksum mismatch")
    try:
        value = canonical.decode(body)
        version = value["format"]
        snapshot = _from_json(value) if version == _FORMAT else None
    except (ValueError, KeyError, TypeError, SeglogError) as error:
        raise FileCorrupt(path, 0, f"the content does not fit: {error!r}") from error
    if snapshot is None:
        raise FormatUnsupported(path, str(version))
    return snapshot


def numbers(files: Files, layout: Layout) -> list[int]:
    """Of the snapshots there are, ascending."""
    found = (number_in("snapshot", name) for name in files.list_dir(layout.meta))
    return [number for number in found if number is not None]


def load(files: Files, layout: Layout) -> tuple[int, Snapshot]:
    """The newest snapshot and its number. Raises `FileCorrupt`, also when there is none."""
    there = numbers(files, layout)
    if not there:
        raise FileCorrupt(layout.meta, 0, "there is no snapshot")
    file = OpenFile(files, layout.snapshot(there[-1]))
    return there[-1], decode_snapshot(file.read(file.size(), 0), file.path)


def store(files: Files, layout: Layout, number: int, snapshot: Snapshot) -> None:
    """Durable on return. Of the older ones, the newest stays for whoever has to repair by hand."""
    replace_atomically(files, layout.snapshot(number), encode_snapshot(snapshot))
    for old in numbers(files, layout):
        if old <= number - _KEPT:
            files.unlink(layout.snapshot(old))


def _from_json(value: dict[str, Any]) -> Snapshot:
    wal = tuple(WalPosition(each["file"], each["offset"], each["ordinal"]) for each in value["wal"])
    topics = tuple(map(_topic_from_json, value["topics"]))
    return Snapshot(
        next_topic_id=value["next_topic_id"],
        topics=topics,
        wal=wal,
        deleted=tuple(value["deleted"]),
        epoch_floor=value["epoch_floor"],
        doomed=tuple((topic_id, first_seq) for topic_id, first_seq in value["doomed"]),
    )


def _topic_to_json(topic: TopicMeta) -> dict[str, Any]:
    active = topic.active
    return {
        "active": None if active is None else [active.first_seq, active.records, active.data_bytes],
        "cold": [_cold_to_json(info) for info in topic.cold],
        "cold_ops": [op.to_json() for op in topic.cold_ops],
        "config": topic.config.to_json(),
        "dead": [[dead.first_seq, dead.records, dead.data_bytes] for dead in topic.dead],
        "epoch": topic.epoch,
        "earliest_seq": topic.floors.earliest_seq,
        "evict_floor": topic.floors.evict_floor,
        "evict_from": topic.floors.evict_from,
        "first_seq": topic.first_seq,
        "head_seq": topic.head_seq,
        "hot_floor": topic.hot_floor,
        "id": topic.topic_id,
        "is_ahead": topic.is_ahead,
        "last_ts_ms": topic.last_ts_ms,
        "name": topic.name,
        "next_op": topic.next_op,
        "ops": [op.to_json() for op in topic.ops],
        "sealed_seq": topic.sealed_seq,
    }


def _topic_from_json(value: dict[str, Any]) -> TopicMeta:
    active = value["active"]
    return TopicMeta(
        topic_id=value["id"],
        name=value["name"],
        epoch=value["epoch"],
        config=TopicConfig.from_json(value["config"]),
        first_seq=value["first_seq"],
        hot_floor=value["hot_floor"],
        sealed_seq=value["sealed_seq"],
        active=None if active is None else ActiveMeta(*active),
        head_seq=value["head_seq"],
        last_ts_ms=value["last_ts_ms"],
        next_op=value["next_op"],
        ops=tuple(map(DeleteOp.from_json, value["ops"])),
        floors=Floors(value["earliest_seq"], value["evict_from"], value["evict_floor"]),
        is_ahead=value["is_ahead"],
        cold=tuple(map(_cold_from_json, value["cold"])),
        cold_ops=tuple(map(DeleteOp.from_json, value["cold_ops"])),
        dead=tuple(DeadMeta(*dead) for dead in value["dead"]),
    )


def _cold_to_json(info: SegmentInfo) -> list[Any]:
    check = f"{info.cold_check:016x}"
    return [info.first_seq, info.last_seq, info.data_bytes, info.min_ts_ms, info.max_ts_ms, check]


def _cold_from_json(value: list[Any]) -> SegmentInfo:
    first_seq, last_seq, data_bytes, min_ts_ms, max_ts_ms, check = value
    return SegmentInfo(first_seq, last_seq, data_bytes, min_ts_ms, max_ts_ms, sealed=True, cold_check=int(check, 16))
