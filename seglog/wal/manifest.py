"""The manifest of all state outside the WAL and the segment files: meta/snapshot.<16 digits>.json.

    body     canonical JSON: {"deleted": [...], "doomed": [...], "epoch_floor", "format": 3 to 5, "mark_secret",
             "next_topic_id", "topics": [...], "wal": [{"file", "offset", "ordinal"}, ...]}
    newline  0x0A
    check    XXH3-64 of the body, 16 hex digits
    newline  0x0A

MANIFEST-1  The manifest is the state after exactly the WAL frames before (file, offset). Recovery replays the WAL from
    there. `wal` has one such position for each shard, so its length is the number of shards. The manifest replaces the
    CheckpointMark frames of the source. So only the manifest says how far segments go.
    A topic with `is_ahead` is the exception. Its state is the one right after the TRUNCATE frame with its epoch, which
    lies further on in the WAL.
MANIFEST-2  The file is written whole or not at all (`replace_atomically`).
    So an invalid newest manifest is damage and not a torn write. Loading it raises `FileCorrupt`. Loading never falls
    back to an older manifest, which would bring deleted records back.
MANIFEST-3  The manifest, and not the size of a file, says how far segments go.
    Bytes past the active segment's lengths come from an unfinished checkpoint. So do segment files past the active one.
    Both are derivable from the WAL. `active` of a topic is [first seq, records, bytes of data, records with the deleted
    flag, their bytes], or null.
MANIFEST-4  `deleted` lists the ids of deleted topics whose directories may still exist.
    `epoch_floor` is the highest epoch of any deleted topic, so that a new topic of the same name gets a higher one.
MANIFEST-5  `sealed` lists the sealed segments of a topic, ascending and without a gap from `hot_floor` on.
    So the first seq of each segment follows from the one before. Opening a log reads no file of a sealed segment
    (SEG-4), and calls no store. The list is flat, because a flat list is the fastest to read and to join. Each segment
    has seven values in it:

        last seq, bytes of data, time of the first record, of the last one, records with the deleted flag, their bytes,
        XXH3-64 of the .idx if it is in the warm store, else null

    The last value is the pointer that a relocation flips. `cold_ops` lists the deletes by tag or by seqs that may reach
    relocated segments and are not in their flags.
MANIFEST-6  `doomed` lists [topic id, first seq] of segments that no topic needs and that a warm store may still have.
MANIFEST-7  The bytes of a sealed segment with deleted records are the size of .data, or larger.
    If they are larger, the segment was rewritten after the manifest (REWRITE-5). The difference is exactly the bytes of
    its deleted records.
MANIFEST-8  A checkpoint encodes only the parts of topics that changed since the last manifest (`Encoder`).
    It joins them with the kept bytes of the other parts, for which it builds no JSON.
MANIFEST-9  `cuts` lists the listed truncations of a topic (seglog.values.deletes).
    Each one is [seq, time, number of the next delete].
MANIFEST-10  `producers` lists the producers of a topic (seglog.values.producer), the one that appended longest ago
    first. `keys` lists the keys of its appends (seglog.values.append_key), the oldest first. A topic without any has no
    such list. Format 1 has neither. Each producer is one list, and each key another:

        id, epoch, time of its newest batch, then for each of its last batches: number, first seq, records
        key, time of its append, first seq, records, digest of the values

MANIFEST-11  `mark_secret` is a random number from 1 to 2^64 - 1, the same in all manifests of a log.
    Every sync mark from the manifest's places on has it (WAL-9). Formats 1 and 2 have none, and the sync marks behind
    their places have any number. The opening of such a directory draws a secret, and writes a manifest of format 3
    before the first append. An older release refuses format 3 by name. It would drop the secret in silence.
MANIFEST-12  `elsewhere` lists the topics that another directory writes, by name (seglog.values.written_elsewhere). Each
    one is {"is_fenced", "keys", "name", "producers"}, with lists as in MANIFEST-10. If there are any, the format is 4.
    So a release that does not know them refuses the directory, and begins no second history.
MANIFEST-13  A directory of form 2 (seglog.base.forms) has format 5, whatever is in it. Only there may a listed delete
    have "seqs" (seglog.values.seq_set). A release that does not know them refuses the directory. It would take such a
    delete for one of all records.
MANIFEST-14  `last_deletes` has what an undo of a delete needs (seglog.values.last_deletes), in a directory of form 2. A
    topic with `keep_history`, and one without a delete, have none.

Source: topics engine architecture, section 5.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import field
from functools import partial
from itertools import chain, repeat, starmap
from operator import itemgetter, le
from pathlib import Path
from typing import Any, NamedTuple

from xxhash import xxh3_64_hexdigest

from seglog.base import forms
from seglog.base.arguments import WHOLE_MAX
from seglog.base.dataclasses import dataclass
from seglog.errors import FileCorrupt, FormatUnsupported, SeglogError
from seglog.files.file_system import NO_DESCRIPTOR, Files, OpenFile, replace_atomically
from seglog.segments.segment import SegmentInfo
from seglog.values import canonical
from seglog.values.append_key import Key, check_key
from seglog.values.canonical import flag, record, text, whole, wholes
from seglog.values.config import TopicConfig
from seglog.values.deletes import DeleteOp, Floors, TruncateOp
from seglog.values.last_deletes import LastDeletes
from seglog.values.layout import Layout, number_in
from seglog.values.names import check_topic_name
from seglog.values.producer import Batch, Producer, check_id, check_producer
from seglog.values.written_elsewhere import Elsewhere

_FORMAT = 3
_FORMAT_WITH_ELSEWHERE = 4
_FORMAT_OF_FORM_2 = 5
_FORMATS_WITHOUT_SECRET = (1, 2)
_KEPT = 2
_CHECK_BYTES = 18
_VALUES = 7
_TOPIC_ID_MAX = WHOLE_MAX
_WAL_KEYS = ("file", "offset", "ordinal")
_wholes_of = itemgetter(
    "id",
    "epoch",
    "first_seq",
    "hot_floor",
    "head_seq",
    "last_ts_ms",
    "next_op",
    "earliest_seq",
    "evict_from",
    "evict_floor",
)
# The same as `SegmentInfo._make`, without the check of the length.
_as_info: Callable[[tuple[Any, ...]], SegmentInfo] = partial(tuple.__new__, SegmentInfo)


class WalPosition(NamedTuple):
    """A position in the WAL of a shard: `offset` in the file `file`.

    `ordinal` is the number of the frame at that position. It counts all frames that the shard ever had.
    The class is a named tuple, because each group commit makes one, and a named tuple costs a third of a dataclass.
    """

    file: int
    offset: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class ActiveMeta:
    """The extent of the active segment, and the number and bytes of its deleted records."""

    first_seq: int
    records: int
    data_bytes: int
    dead_records: int = 0
    dead_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """The state of a topic in a manifest.

    `sealed` includes the relocated segments. `ops` are the listed deletes, `truncate_ops` the listed truncations.
    The seqs above the segments, up to `head_seq`, belonged to ephemeral records. They are not used again.
    """

    topic_id: int
    name: str
    epoch: int
    config: TopicConfig
    first_seq: int
    hot_floor: int
    active: ActiveMeta | None
    head_seq: int
    last_ts_ms: int
    next_op: int
    ops: tuple[DeleteOp, ...]
    floors: Floors = field(default_factory=Floors)
    is_ahead: bool = False
    sealed: tuple[SegmentInfo, ...] = ()
    warm_ops: tuple[DeleteOp, ...] = ()
    truncate_ops: tuple[TruncateOp, ...] = ()
    last_deletes: LastDeletes | None = None
    producers: tuple[tuple[str, Producer], ...] = ()
    keys: tuple[tuple[str, Key], ...] = ()

    @property
    def sealed_seq(self) -> int:
        """The highest seq in a sealed segment; `hot_floor - 1` without a sealed segment."""
        return self.sealed[-1].last_seq if self.sealed else self.hot_floor - 1

    @property
    def warm(self) -> tuple[SegmentInfo, ...]:
        """The sealed segments that are relocated."""
        return tuple(info for info in self.sealed if info.warm_check is not None)


@dataclass(frozen=True, slots=True)
class LogManifest:
    next_topic_id: int
    topics: tuple[TopicMeta, ...]
    wal: tuple[WalPosition, ...]
    deleted: tuple[int, ...] = ()
    epoch_floor: int = 0
    pending_warm_deletes: tuple[tuple[int, int], ...] = ()
    mark_secret: int = 0
    elsewhere: tuple[tuple[str, Elsewhere], ...] = ()
    form: int = 1


@dataclass(frozen=True, slots=True)
class _Encoded:
    """An encoded topic. `rows` are its sealed segments, `ops` its listed deletes, `body` is the whole."""

    meta: TopicMeta
    rows: list[bytes]
    ops: list[bytes]
    body: bytes


class Encoder:
    """Encodes manifests, and keeps the bytes of each topic for the next one (MANIFEST-8). Not thread-safe."""

    def __init__(self) -> None:
        self._topics: dict[int, _Encoded] = {}
        # Topics that `put` received and no manifest has encoded yet.
        self._waiting: dict[int, TopicMeta] = {}

    def put(self, topic: TopicMeta) -> None:
        """Use this state of the topic in all later manifests."""
        self._waiting[topic.topic_id] = topic

    def remove(self, topic_id: int) -> None:
        """Leave the topic out of all later manifests."""
        self._waiting.pop(topic_id, None)
        self._topics.pop(topic_id, None)

    def known(self, topic_id: int) -> TopicMeta | None:
        """Return the state that the last `put` of the topic gave, or None."""
        encoded = self._topics.get(topic_id)
        return self._waiting.get(topic_id, None if encoded is None else encoded.meta)

    def encode(self, manifest: LogManifest) -> bytes:
        """Return the bytes of `manifest`, with its topics and no others."""
        for topic_id in {*self._topics, *self._waiting} - {topic.topic_id for topic in manifest.topics}:
            self.remove(topic_id)
        for topic in manifest.topics:
            self.put(topic)
        return self.encode_put(manifest)

    def encode_put(self, manifest: LogManifest) -> bytes:
        """Return the bytes of `manifest` with the topics that `put` received, instead of its own."""
        last = next(reversed(self._topics), 0)
        for topic_id, topic in self._waiting.items():
            self._topics[topic_id] = _encode_topic(topic, self._topics.get(topic_id), manifest.form)
        if any(topic_id < last for topic_id in self._waiting):
            self._topics = dict(sorted(self._topics.items()))
        self._waiting = {}
        before = {
            "deleted": list(manifest.deleted),
            "doomed": [list(key) for key in manifest.pending_warm_deletes],
            "epoch_floor": manifest.epoch_floor,
            "format": _format(manifest),
            "mark_secret": manifest.mark_secret,
            "next_topic_id": manifest.next_topic_id,
            **({"elsewhere": [*starmap(_elsewhere_row, manifest.elsewhere)]} if manifest.elsewhere else {}),
        }
        wal = {"wal": [{"file": at.file, "offset": at.offset, "ordinal": at.ordinal} for at in manifest.wal]}
        topics = b",".join([topic.body for topic in self._topics.values()])
        body = canonical.encode(before)[:-1] + b',"topics":[' + topics + b"]," + canonical.encode(wal)[1:]
        return body + b"\n" + xxh3_64_hexdigest(body).encode() + b"\n"


def _format(manifest: LogManifest) -> int:
    if manifest.form > 1:
        return _FORMAT_OF_FORM_2
    return _FORMAT_WITH_ELSEWHERE if manifest.elsewhere else _FORMAT


def encode_manifest(manifest: LogManifest) -> bytes:
    return Encoder().encode(manifest)


def decode_manifest(raw: bytes, path: Path) -> LogManifest:
    """Decode the bytes of a manifest. Raises `FileCorrupt` or `FormatUnsupported`, which name `path`."""
    body, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
    if check != b"\n" + xxh3_64_hexdigest(body).encode() + b"\n":
        raise FileCorrupt(path, 0, "checksum mismatch")
    try:
        value = record(canonical.decode(body))
        version = value["format"]
        newest = _FORMAT_OF_FORM_2 if forms.NEWEST > 1 else _FORMAT_WITH_ELSEWHERE
        manifest = _from_json(value) if version in range(1, newest + 1) else None
    except (ValueError, KeyError, TypeError, SeglogError) as error:
        raise FileCorrupt(path, 0, f"the content does not fit: {error!r}") from error
    if manifest is None:
        raise FormatUnsupported(path, str(version), f"1 to {newest}")
    return manifest


def new_mark_secret() -> int:
    """Draw the secret of a log's sync marks (MANIFEST-11)."""
    return int.from_bytes(os.urandom(8), "little") or 1


def numbers(files: Files, layout: Layout) -> list[int]:
    """Return the numbers of the manifest files, ascending."""
    parsed = (number_in("snapshot", name) for name in files.list_dir(layout.meta))
    return [number for number in parsed if number is not None]


def load(files: Files, layout: Layout) -> tuple[int, LogManifest]:
    """Return the number of the newest manifest, and the manifest. Raises `FileCorrupt` if it is invalid or missing."""
    present = numbers(files, layout)
    if not present:
        raise FileCorrupt(layout.meta, 0, "there is no manifest")
    file = OpenFile(files, layout.manifest(present[-1]))
    return present[-1], decode_manifest(file.read(file.size(), 0), file.path)


def store(files: Files, layout: Layout, number: int, manifest: LogManifest) -> None:
    """Write the manifest durably, and unlink older ones.

    The manifest numbered one below stays, for an operator who must repair the directory by hand.
    """
    store_encoded(files, layout, number, encode_manifest(manifest))


def store_encoded(files: Files, layout: Layout, number: int, raw: bytes) -> None:
    """Do the same as `store`, with encoded bytes.

    Without a file descriptor to list the directory, the older manifests stay until the next call.
    """
    replace_atomically(files, layout.manifest(number), raw)
    try:
        present = numbers(files, layout)
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR:
            raise
        present = []
    for old in present:
        if old <= number - _KEPT:
            files.unlink(layout.manifest(old))


def _from_json(value: dict[str, Any]) -> LogManifest:
    wal = tuple(WalPosition._make(wholes(map(at.__getitem__, _WAL_KEYS))) for at in map(record, value["wal"]))
    topics = tuple(map(_topic_from_json, value["topics"]))
    next_topic_id, epoch_floor, *deleted = wholes((value["next_topic_id"], value["epoch_floor"], *value["deleted"]))
    ids = {topic.topic_id for topic in topics}
    if not wal or len({topic.name for topic in topics}) < len(topics) or len(ids) < len(topics):
        raise ValueError("it has no place in the WAL, or a topic twice")
    if not max(ids, default=0) < next_topic_id <= _TOPIC_ID_MAX + 1:
        raise ValueError(f"topic {next_topic_id} cannot be the next one")
    elsewhere = tuple(map(_elsewhere_from_json, value.get("elsewhere", [])))
    if len(dict(elsewhere)) < len(elsewhere):
        raise ValueError("a topic is elsewhere twice")
    return LogManifest(
        next_topic_id=next_topic_id,
        topics=topics,
        wal=wal,
        deleted=tuple(deleted),
        epoch_floor=epoch_floor,
        pending_warm_deletes=tuple(_pair(wholes(pair)) for pair in value["doomed"]),
        mark_secret=0 if value["format"] in _FORMATS_WITHOUT_SECRET else whole(value["mark_secret"], 1),
        elsewhere=elsewhere,
        form=2 if value["format"] == _FORMAT_OF_FORM_2 else 1,
    )


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    first, second = values
    return first, second


def _encode_topic(topic: TopicMeta, encoded: _Encoded | None, form: int) -> _Encoded:
    if encoded is not None and encoded.meta == topic:
        return encoded
    rows, ops = _rows(topic.sealed, encoded), _ops(topic.ops, encoded)
    producers = b',"producers":' + canonical.encode([*map(_producer_row, topic.producers)]) if topic.producers else b""
    # The keys are sorted by name, so `ops`, `producers` and `sealed` come last.
    lists = b',"ops":[' + b",".join(ops) + b"]" + producers + b',"sealed":[' + b",".join(rows) + b"]}"
    return _Encoded(topic, rows, ops, canonical.encode(_topic_to_json(topic, form))[:-1] + lists)


def _rows(sealed: tuple[SegmentInfo, ...], encoded: _Encoded | None) -> list[bytes]:
    """Encode the sealed segments. Rows of `encoded`, from the present first segment on, are reused."""
    if encoded is None or not sealed:
        return [*map(_row, sealed)]
    start = bisect_left(encoded.meta.sealed, sealed[0].first_seq, key=lambda info: info.first_seq)
    old = zip(sealed, encoded.meta.sealed[start:], encoded.rows[start:], strict=False)
    rows = [row if info is was else _row(info) for info, was, row in old]
    return [*rows, *map(_row, sealed[len(rows) :])]


def _ops(ops: tuple[DeleteOp, ...], encoded: _Encoded | None) -> list[bytes]:
    """Encode the listed deletes. Items of `encoded`, from the present first delete on, are reused."""
    if encoded is None or not ops:
        return [*map(_op, ops)]
    start = bisect_left(encoded.meta.ops, ops[0].op, key=lambda op: op.op)
    old = zip(ops, encoded.meta.ops[start:], encoded.ops[start:], strict=False)
    rows = [row if op is was else _op(op) for op, was, row in old]
    return [*rows, *map(_op, ops[len(rows) :])]


def _op(op: DeleteOp) -> bytes:
    return canonical.encode(op.to_json())


def _row(info: SegmentInfo) -> bytes:
    check = "null" if info.warm_check is None else info.warm_check
    times = f"{info.min_ts_ms},{info.max_ts_ms}"
    return f"{info.last_seq},{info.data_bytes},{times},{info.dead_records},{info.dead_bytes},{check}".encode()


def _elsewhere_row(name: str, mark: Elsewhere) -> dict[str, Any]:
    return {
        "is_fenced": mark.is_fenced,
        "keys": [*map(_key_row, mark.keys)],
        "name": name,
        "producers": [*map(_producer_row, mark.producers)],
    }


def _elsewhere_from_json(value: object) -> tuple[str, Elsewhere]:
    fields = record(value)
    mark = Elsewhere(
        flag(fields["is_fenced"]), _producers_from_json(fields["producers"]), _keys_from_json(fields["keys"])
    )
    return check_topic_name(text(fields["name"])), mark


def _key_row(item: tuple[str, Key]) -> list[Any]:
    key, state = item
    return [key, *state]


def _producer_row(item: tuple[str, Producer]) -> list[Any]:
    producer, state = item
    return [producer, state.epoch, state.ts_ms, *chain.from_iterable(state.batches)]


def _producers_from_json(rows: list[Any]) -> tuple[tuple[str, Producer], ...]:
    producers = tuple(_producer_from_json(*row) for row in rows)
    if len(dict(producers)) < len(producers):
        raise ValueError("a producer is there twice")
    return producers


def _producer_from_json(producer: object, *numbers: object) -> tuple[str, Producer]:
    epoch, ts_ms, *flat = wholes(numbers)
    parts = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    state = Producer(epoch, ts_ms, tuple(Batch(*part) for part in parts))
    return check_id(text(producer)), check_producer(state)


def _keys_from_json(rows: list[Any]) -> tuple[tuple[str, Key], ...]:
    keys = tuple((check_key(text(key)), Key(*wholes(numbers))) for key, *numbers in rows)
    if len(dict(keys)) < len(keys) or any(state.first_seq < 1 or state.records < 1 for _, state in keys):
        raise ValueError("a key is there twice, or has no records")
    return keys


def _sealed_from_json(flat: list[Any], first_seq: int) -> tuple[SegmentInfo, ...]:
    if not flat:
        return ()
    columns = [flat[at::_VALUES] for at in range(_VALUES)]
    _check_sealed(flat, columns, first_seq)
    last, data_bytes, min_ts_ms, max_ts_ms, dead_records, dead_bytes, check = columns
    first = [first_seq, *(seq + 1 for seq in last)]
    if not all(map(le, first, last)):
        raise ValueError("a sealed segment has no records")
    rest = (last, data_bytes, min_ts_ms, max_ts_ms, repeat(True), check, dead_records, dead_bytes)
    return tuple(map(_as_info, zip(first, *rest, strict=False)))


def _check_sealed(flat: list[Any], columns: list[list[Any]], first_seq: int) -> None:
    """Raise `ValueError` if a value is missing, not a number, or out of range.

    There may be a million values, so the check makes a few passes over whole lists.
    """
    *numbers, check = columns
    is_fit = len(flat) % _VALUES == 0 and set(map(type, flat)) <= {int, type(None)} and first_seq >= 1
    if not is_fit or flat.count(None) != check.count(None):
        raise ValueError("a value of a sealed segment is missing or is not a number")
    try:
        for column in (*numbers, [number for number in check if number is not None]):
            array("Q", column)
    except OverflowError as error:
        raise ValueError("a value of a sealed segment is out of range") from error


def _topic_to_json(topic: TopicMeta, form: int) -> dict[str, Any]:
    """Return the topic as JSON, without its listed deletes and its sealed segments."""
    active = topic.active
    return {
        "active": None
        if active is None
        else [active.first_seq, active.records, active.data_bytes, active.dead_records, active.dead_bytes],
        "cold_ops": [op.to_json() for op in topic.warm_ops],
        "config": topic.config.to_json(),
        "cuts": [[op.seq, op.ts_ms, op.next_op] for op in topic.truncate_ops],
        "epoch": topic.epoch,
        "earliest_seq": topic.floors.earliest_seq,
        "evict_floor": topic.floors.evict_floor,
        "evict_from": topic.floors.evict_from,
        "first_seq": topic.first_seq,
        "head_seq": topic.head_seq,
        "hot_floor": topic.hot_floor,
        "id": topic.topic_id,
        "is_ahead": topic.is_ahead,
        **({} if topic.last_deletes is None or form < 2 else {"last_deletes": topic.last_deletes.to_json()}),
        "last_ts_ms": topic.last_ts_ms,
        "name": topic.name,
        "next_op": topic.next_op,
        **({"keys": [*map(_key_row, topic.keys)]} if topic.keys else {}),
    }


def _topic_from_json(value: object) -> TopicMeta:
    fields = record(value)
    active = fields["active"]
    topic_id, epoch, first_seq, hot_floor, head_seq, last_ts_ms, next_op, *floors = wholes(_wholes_of(fields))
    meta = TopicMeta(
        topic_id=topic_id,
        name=check_topic_name(text(fields["name"])),
        epoch=epoch,
        config=TopicConfig.from_json(fields["config"]),
        first_seq=first_seq,
        hot_floor=hot_floor,
        active=None if active is None else ActiveMeta(*wholes(active)),
        head_seq=head_seq,
        last_ts_ms=last_ts_ms,
        next_op=next_op,
        ops=tuple(map(DeleteOp.from_json, fields["ops"])),
        floors=Floors(*floors),
        is_ahead=flag(fields["is_ahead"]),
        sealed=_sealed_from_json(fields["sealed"], hot_floor),
        warm_ops=tuple(map(DeleteOp.from_json, fields["cold_ops"])),
        truncate_ops=tuple(TruncateOp(*wholes(cut)) for cut in fields["cuts"]),
        last_deletes=LastDeletes.from_json(fields["last_deletes"]) if "last_deletes" in fields else None,
        producers=_producers_from_json(fields.get("producers", [])),
        keys=_keys_from_json(fields.get("keys", [])),
    )
    _check_topic(meta)
    return meta


def _check_topic(meta: TopicMeta) -> None:
    """Raise `ValueError` if the numbers of the topic contradict each other."""
    active, end = meta.active, meta.sealed_seq
    if active is not None:
        is_fit = active.first_seq == end + 1 and active.records >= 1
        end += active.records if is_fit else 0
    else:
        is_fit = True
    is_fit = is_fit and 1 <= meta.topic_id <= _TOPIC_ID_MAX and meta.epoch >= 1 and meta.next_op >= 1
    is_fit = is_fit and min(meta.first_seq, meta.hot_floor) >= 1 and end <= meta.head_seq and meta.floors.is_fit
    if not is_fit or meta.floors.earliest_seq > meta.head_seq + 1:
        raise ValueError(f"the numbers of topic {meta.name} do not fit each other")
