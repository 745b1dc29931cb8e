"""Catalog objects: golden files, round trips, damage at every byte, and a hash that covers every field."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from catalog import schema_pb2 as pb
from catalog.errors import FormatUnsupported, InvalidObject
from catalog.format.commit import (
    Bounds,
    Codec,
    Commit,
    CommitKind,
    Deletions,
    ForkPoint,
    LoadMark,
    SegmentRef,
    SegmentView,
)
from catalog.format.control import Control, Fork, Ref
from catalog.format.encoding import (
    StoredCommit,
    commit_hash,
    decode_commit,
    decode_commit_at,
    decode_views,
    delete_nonce,
    encode_commit,
    encode_views,
    load_nonce,
    with_checkpoint,
)
from catalog.format.envelope import HEADER, MAGIC, MessageType, unwrap, wrap
from catalog.format.ids import Sid, Vid
from catalog.format.small_objects import (
    decode_boundary,
    decode_checkpoint_set,
    decode_control,
    decode_control_of,
    decode_fork,
    decode_oplog_entry,
    decode_pin,
    decode_ref,
    decode_tag,
    encode_boundary,
    encode_checkpoint_set,
    encode_control,
    encode_fork,
    encode_oplog_entry,
    encode_pin,
    encode_ref,
    encode_tag,
)
from tests.catalog.samples import (
    GOLDEN_BOUNDARY,
    GOLDEN_CHECKPOINT,
    GOLDEN_CHECKPOINTS,
    GOLDEN_CLOSING_BOUNDARY,
    GOLDEN_COMMIT,
    GOLDEN_CONFIG_COMMIT,
    GOLDEN_CONTROL,
    GOLDEN_DELETED_REF,
    GOLDEN_DELETED_TAG,
    GOLDEN_FORK,
    GOLDEN_LOAD_CHECKPOINT,
    GOLDEN_LOAD_COMMIT,
    GOLDEN_LONG_CHECKPOINTS,
    GOLDEN_OPLOG_ENTRY,
    GOLDEN_OPLOG_ENTRY_OF_TWO,
    GOLDEN_PIN,
    GOLDEN_PRUNED_CHECKPOINTS,
    GOLDEN_REF,
    GOLDEN_RESTORE_COMMIT,
    GOLDEN_TAG,
    GOLDEN_VIEWS,
    segment,
    sid,
    vid,
)

GOLDEN = Path(__file__).parents[2] / "golden"
KINDS: dict[str, tuple[object, bytes, Callable[[bytes, str], object]]] = {
    "commit": (
        StoredCommit(GOLDEN_COMMIT, commit_hash(GOLDEN_COMMIT)),
        encode_commit(GOLDEN_COMMIT)[0],
        decode_commit,
    ),
    "control": (GOLDEN_CONTROL, encode_control(GOLDEN_CONTROL), decode_control),
    "fork": (GOLDEN_FORK, encode_fork(GOLDEN_FORK), decode_fork),
    "ref": (GOLDEN_REF, encode_ref(GOLDEN_REF), decode_ref),
    "deleted_ref": (GOLDEN_DELETED_REF, encode_ref(GOLDEN_DELETED_REF), decode_ref),
    "tag": (GOLDEN_TAG, encode_tag(GOLDEN_TAG), decode_tag),
    "deleted_tag": (GOLDEN_DELETED_TAG, encode_tag(GOLDEN_DELETED_TAG), decode_tag),
    "pin": (GOLDEN_PIN, encode_pin(GOLDEN_PIN), decode_pin),
    "boundary": (GOLDEN_BOUNDARY, encode_boundary(GOLDEN_BOUNDARY), lambda body, _: decode_boundary(body, vid(1))),
    "checkpoint_set": (
        GOLDEN_CHECKPOINTS,
        encode_checkpoint_set(GOLDEN_CHECKPOINTS),
        lambda body, _: decode_checkpoint_set(body, vid(1)),
    ),
    "closing_boundary": (
        GOLDEN_CLOSING_BOUNDARY,
        encode_boundary(GOLDEN_CLOSING_BOUNDARY),
        lambda body, _: decode_boundary(body, vid(1)),
    ),
    "pruned_checkpoint_set": (
        GOLDEN_PRUNED_CHECKPOINTS,
        encode_checkpoint_set(GOLDEN_PRUNED_CHECKPOINTS),
        lambda body, _: decode_checkpoint_set(body, vid(1)),
    ),
    "long_checkpoint_set": (
        GOLDEN_LONG_CHECKPOINTS,
        encode_checkpoint_set(GOLDEN_LONG_CHECKPOINTS),
        lambda body, _: decode_checkpoint_set(body, vid(1)),
    ),
    "oplog_entry_of_two": (
        GOLDEN_OPLOG_ENTRY_OF_TWO,
        encode_oplog_entry(GOLDEN_OPLOG_ENTRY_OF_TWO),
        decode_oplog_entry,
    ),
    "oplog_entry": (GOLDEN_OPLOG_ENTRY, encode_oplog_entry(GOLDEN_OPLOG_ENTRY), decode_oplog_entry),
    "config_commit": (
        StoredCommit(GOLDEN_CONFIG_COMMIT, commit_hash(GOLDEN_CONFIG_COMMIT)),
        encode_commit(GOLDEN_CONFIG_COMMIT)[0],
        decode_commit,
    ),
    "checkpoint": (
        StoredCommit(GOLDEN_COMMIT, commit_hash(GOLDEN_COMMIT), GOLDEN_CHECKPOINT),
        with_checkpoint(encode_commit(GOLDEN_COMMIT)[0], GOLDEN_CHECKPOINT, "golden"),
        decode_commit,
    ),
    "load_commit": (
        StoredCommit(GOLDEN_LOAD_COMMIT, commit_hash(GOLDEN_LOAD_COMMIT)),
        encode_commit(GOLDEN_LOAD_COMMIT)[0],
        decode_commit,
    ),
    "load_checkpoint": (
        StoredCommit(GOLDEN_LOAD_COMMIT, commit_hash(GOLDEN_LOAD_COMMIT), GOLDEN_LOAD_CHECKPOINT),
        with_checkpoint(encode_commit(GOLDEN_LOAD_COMMIT)[0], GOLDEN_LOAD_CHECKPOINT, "golden"),
        decode_commit,
    ),
    "restore_commit": (
        StoredCommit(GOLDEN_RESTORE_COMMIT, commit_hash(GOLDEN_RESTORE_COMMIT)),
        encode_commit(GOLDEN_RESTORE_COMMIT)[0],
        decode_commit,
    ),
    "segment_list": (
        GOLDEN_VIEWS,
        wrap(MessageType.SEGMENT_LIST, encode_views(GOLDEN_VIEWS)),
        lambda body, place: decode_views(unwrap(MessageType.SEGMENT_LIST, body, place), place),
    ),
}
TYPES = {
    "deleted_ref": "REF",
    "deleted_tag": "TAG",
    "closing_boundary": "BOUNDARY",
    "oplog_entry_of_two": "OPLOG_ENTRY",
    "pruned_checkpoint_set": "CHECKPOINT_SET",
    "long_checkpoint_set": "CHECKPOINT_SET",
    "config_commit": "COMMIT",
    "checkpoint": "COMMIT",
    "load_commit": "COMMIT",
    "load_checkpoint": "COMMIT",
    "restore_commit": "COMMIT",
}
each_kind = pytest.mark.parametrize("kind", KINDS)

# ---------------------------------------------------------------- every kind


@each_kind
def test_golden_files_are_what_is_written_and_what_is_read(kind: str) -> None:
    value, body, decode = KINDS[kind]
    golden = (GOLDEN / f"catalog_{kind}.bin").read_bytes()
    assert body == golden
    assert decode(golden, "golden") == value


def test_every_type_of_message_has_a_golden_file() -> None:
    golden = b"".join(path.read_bytes() for path in GOLDEN.glob("catalog_*.bin"))
    beginnings = {kind: HEADER.pack(MAGIC, bytes(3), kind) for kind in MessageType}
    assert [kind.name for kind, beginning in beginnings.items() if beginning not in golden] == []


@each_kind
def test_every_flipped_byte_is_found_and_the_object_named(kind: str) -> None:
    _, body, decode = KINDS[kind]
    for offset in range(len(body)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(body)
            damaged[offset] ^= flip
            version_digit = body[:offset].endswith(MAGIC[:3]) and bytes(damaged[offset : offset + 1]).isdigit()
            with pytest.raises(FormatUnsupported if version_digit else InvalidObject, match=": "):
                decode(bytes(damaged), "vol/object")


@each_kind
def test_every_truncation_is_found(kind: str) -> None:
    _, body, decode = KINDS[kind]
    for length in range(len(body)):
        with pytest.raises(InvalidObject):
            decode(body[:length], "vol/object")


@each_kind
def test_another_format_version_is_not_read(kind: str) -> None:
    _, body, decode = KINDS[kind]
    with pytest.raises(FormatUnsupported, match="format version 9"):
        decode(b"SGL9" + body[4:], "vol/object")


@each_kind
def test_one_kind_is_not_taken_for_another(kind: str) -> None:
    _, _, decode = KINDS[kind]
    for other, (_, body, _) in KINDS.items():
        if TYPES.get(other, other.upper()) != TYPES.get(kind, kind.upper()):
            with pytest.raises(InvalidObject, match=r"type|checksum"):  # a list of checkpoints may be two envelopes
                decode(body, "vol/object")


@each_kind
@given(data=st.binary(max_size=80))
def test_any_bytes_in_a_sound_envelope_decode_or_are_invalid(kind: str, data: bytes) -> None:
    _, _, decode = KINDS[kind]
    with contextlib.suppress(InvalidObject, FormatUnsupported):  # any other exception fails the test
        decode(wrap(MessageType[TYPES.get(kind, kind.upper())], data), "vol/object")


# ---------------------------------------------------------------- round trips

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
hashes = st.binary(min_size=32, max_size=32)
ms = st.integers(0, 253_402_300_799_999)  # the range of protobuf's Timestamp
text = st.text(max_size=20)
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True)
vids = st.builds(lambda tail: Vid(b"\x80" + tail[:6] + b"\x80" + tail[6:]), st.binary(min_size=14, max_size=14))
sids = st.builds(lambda tail: Sid(b"\xc0" + tail[:6] + b"\x80" + tail[6:]), st.binary(min_size=14, max_size=14))
points = st.builds(ForkPoint, vids, u64, st.none() | u64)
segments = st.builds(
    lambda seqs, live, **rest: SegmentRef(
        first_seq=min(seqs), last_seq=max(seqs), live_records=min(live, max(seqs) - min(seqs) + 1), **rest
    ),
    st.tuples(st.integers(1, 2**64 - 1), st.integers(1, 2**64 - 1)),
    live=u64,
    sid=sids,
    min_ts_ms=u64,
    max_ts_ms=u64,
    data_length=u64,
    data_hash=hashes,
    index_head_length=u32,
    index_trailer_length=u32,
    index_head_hash=hashes,
    codec=st.sampled_from(Codec),
    frame_bytes=u64,
)
bitmaps = st.lists(u32, max_size=4).map(lambda seqs: BitMap(seqs).serialize())
commits = st.builds(
    Commit,
    vid=vids,
    lsn=st.integers(1, 2**64 - 1),
    kind=st.sampled_from([kind for kind in CommitKind if kind is not CommitKind.RESTORE]),
    bounds=st.builds(Bounds, u64, u64, u64),
    parent_hash=hashes,
    nonce=st.binary(min_size=16, max_size=16),
    created_at_ms=ms,
    writer_id=text,
    epoch=u64,
    at_seq=u64,
    at_ts_ms=u64,
    message=text,
    segments=st.lists(segments, max_size=3).map(tuple),
    removed_sids=st.lists(sids, max_size=3).map(tuple),
    deletions=st.builds(Deletions, u64, st.dictionaries(sids, bitmaps, max_size=3)),
    truncate_from=st.none() | u64,
)


@settings(max_examples=60, deadline=None)
@given(commits)
def test_commits_round_trip(commit: Commit) -> None:
    body, digest = encode_commit(commit)
    assert decode_commit_at(body, commit.vid, commit.lsn) == StoredCommit(commit, digest)


@settings(max_examples=20, deadline=None)
@given(commits, text, st.binary(min_size=16, max_size=16))
def test_commits_of_loads_round_trip(commit: Commit, key: str, salt: bytes) -> None:
    mark = LoadMark(key, salt)
    commit = dataclasses.replace(commit, load=mark, nonce=load_nonce(mark))
    body, digest = encode_commit(commit)
    assert decode_commit_at(body, commit.vid, commit.lsn) == StoredCommit(commit, digest)


@given(st.builds(Control, vids, st.none() | points, ms, names, names))
def test_controls_round_trip(control: Control) -> None:
    assert decode_control_of(encode_control(control), control.vid) == control


@given(st.builds(Fork, vids, points))
def test_forks_round_trip(fork: Fork) -> None:
    assert decode_fork(encode_fork(fork), "here") == fork


@given(st.builds(Ref, vids, ms))
def test_refs_round_trip(ref: Ref) -> None:
    assert decode_ref(encode_ref(ref), "here") == ref


# ---------------------------------------------------------------- the commit hash


def test_the_hash_is_over_the_bytes_that_the_docstring_lists() -> None:
    def le(value: int, size: int) -> bytes:
        return value.to_bytes(size, "little")

    c = GOLDEN_COMMIT
    by_hand = b"SGC1" + c.vid.raw + le(7, 8) + c.parent_hash + le(3, 8) + le(5_000, 8) + le(2, 8) + c.nonce
    by_hand += b"\x05" + le(c.created_at_ms, 8) + le(4, 8) + le(5_100, 8) + le(c.at_ts_ms, 8) + b"\x01" + le(5_001, 8)
    by_hand += le(6, 4) + b"host-1" + le(18, 4) + b"every field is set" + le(2, 4)
    for ref in c.segments:
        by_hand += ref.sid.raw + ref.data_hash + le(ref.first_seq, 8) + le(ref.last_seq, 8)
        by_hand += le(ref.min_ts_ms, 8) + le(ref.max_ts_ms, 8) + le(ref.data_length, 8)
        by_hand += le(500, 4) + le(90, 4) + ref.index_head_hash + b"\x02" + le(ref.frame_bytes, 8)
        by_hand += le(ref.live_records, 8)
    by_hand += le(3, 8) + le(2, 4)
    for name in (sid(7), sid(1_100)):  # ascending
        bitmap = c.deletions.bitmaps[name]
        by_hand += name.raw + le(len(bitmap), 4) + bitmap
    by_hand += le(2, 4) + sid(9).raw + sid(8).raw
    assert commit_hash(c) == blake3(by_hand).digest()


def changed(value: object) -> object:
    """Return another value of the same type."""
    match value:
        case Vid() | Sid():
            return type(value)(value.raw[:-1] + bytes([value.raw[-1] ^ 1]))
        case Codec():
            return Codec.NONE if value is Codec.ZSTD else Codec.ZSTD
        case CommitKind():
            return CommitKind.OFFLOAD if value is not CommitKind.OFFLOAD else CommitKind.DELETE
        case int():
            return value + 1
        case str():
            return value + "x"
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:]
        case None:
            return 0
    raise AssertionError(value)


def variants(value: object) -> list[object]:
    """Return copies of `value`, each with one part changed."""
    if isinstance(value, Vid | Sid) or not dataclasses.is_dataclass(value):
        if isinstance(value, tuple):
            found = [(*value[:n], other, *value[n + 1 :]) for n in range(len(value)) for other in variants(value[n])]
            return [*found, value[1:], value[::-1], ()]
        if isinstance(value, dict):
            return [{}, dict(list(value.items())[1:]), {name: changed(body) for name, body in value.items()},
                    {changed(name): body for name, body in value.items()}]  # fmt: skip
        return [changed(value)]
    return [
        dataclasses.replace(value, **{field.name: other})  # type: ignore[type-var]
        for field in dataclasses.fields(value)
        # The nonce is made of `load`, and a commit without that nonce is refused. `restored` belongs to a kind.
        if field.name not in {"load", "restored"}
        for other in variants(getattr(value, field.name))
    ]


def test_every_field_of_a_commit_changes_its_hash() -> None:
    config = dataclasses.replace(GOLDEN_COMMIT, kind=CommitKind.CONFIG, config="{}", collected_before_ms=7)
    hashes_seen = [commit_hash(GOLDEN_COMMIT)]
    for commit in (GOLDEN_COMMIT, config):
        others = [other for other in variants(commit) if isinstance(other, Commit)]
        without = [dataclasses.replace(commit, truncate_from=seq) for seq in (None, 0)]
        hashes_seen += (
            commit_hash(other)
            for other in (*others, *without)
            if other.kind is CommitKind.CONFIG or not (other.config or other.collected_before_ms is not None)
        )
    hashes_seen += (commit_hash(dataclasses.replace(config, collected_before_ms=ms)) for ms in (None, 0))
    assert len(hashes_seen) > 100
    assert len(set(hashes_seen)) == len(hashes_seen)


def test_every_field_of_what_is_restored_changes_the_hash() -> None:
    restored = GOLDEN_RESTORE_COMMIT.restored
    assert restored is not None
    views = tuple(dataclasses.replace(view, deleted=GOLDEN_VIEWS[0].deleted) for view in restored.views)
    full = dataclasses.replace(restored, views=views)
    undone = [dataclasses.replace(full.undone, vid=vid(4)), dataclasses.replace(full.undone, lsn=6)]
    found = [restored, full, *(dataclasses.replace(full, undone=each) for each in undone)]
    found += [dataclasses.replace(full, before_seq=3), *(dataclasses.replace(full, views=v) for v in variants(views))]  # type: ignore[arg-type]
    hashes_seen = {commit_hash(dataclasses.replace(GOLDEN_RESTORE_COMMIT, restored=each)) for each in found}
    assert len(hashes_seen) == len(found) > 30


def test_the_hash_of_a_restore_ends_with_the_bytes_that_the_docstring_lists() -> None:
    def le(value: int, size: int) -> bytes:
        return value.to_bytes(size, "little")

    c = GOLDEN_RESTORE_COMMIT
    by_hand = b"SGC1" + c.vid.raw + le(10, 8) + c.parent_hash + le(1, 8) + le(6_000, 8) + le(0, 8) + c.nonce
    by_hand += b"\x07" + le(c.created_at_ms, 8) + le(7, 8) + le(6_000, 8) + le(c.at_ts_ms, 8) + b"\x00" + le(0, 8)
    by_hand += le(6, 4) + b"host-1" + le(22, 4) + b"it was the wrong topic" + le(0, 4) + le(0, 8) + le(0, 4) + le(0, 4)
    by_hand += vid(3).raw + le(5, 8) + le(2, 8) + le(2, 4)
    for view, bitmap in zip(GOLDEN_VIEWS, (GOLDEN_VIEWS[0].deleted or b"", b""), strict=True):
        ref = view.ref
        by_hand += view.vid.raw + le(view.lsn, 8) + le(view.first, 8) + le(view.last, 8)
        by_hand += ref.sid.raw + ref.data_hash + le(ref.first_seq, 8) + le(ref.last_seq, 8)
        by_hand += le(ref.min_ts_ms, 8) + le(ref.max_ts_ms, 8) + le(ref.data_length, 8)
        by_hand += le(500, 4) + le(90, 4) + ref.index_head_hash + b"\x02" + le(ref.frame_bytes, 8)
        by_hand += le(ref.live_records, 8) + le(len(bitmap), 4) + bitmap
    assert commit_hash(c) == blake3(by_hand).digest()


def test_only_a_commit_of_kind_restore_says_what_it_restores() -> None:
    for commit in (
        dataclasses.replace(GOLDEN_RESTORE_COMMIT, restored=None),
        dataclasses.replace(GOLDEN_RESTORE_COMMIT, kind=CommitKind.OFFLOAD),
    ):
        with pytest.raises(ValueError, match="kind restore"):
            encode_commit(commit)


def test_a_kind_of_newer_software_is_refused_by_its_name() -> None:
    message = pb.Commit.FromString(unwrap(MessageType.COMMIT, KINDS["commit"][1], "here"))
    message.kind = 8  # type: ignore[assignment]
    with pytest.raises(FormatUnsupported, match="here: format version 1 with commits of kind 8"):
        decode_commit(wrap(MessageType.COMMIT, message.SerializeToString()), "here")


@pytest.mark.parametrize("fields", [{"config": "{}"}, {"collected_before_ms": 0}])
def test_only_a_commit_of_kind_config_has_a_configuration(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="compact has no configuration"):
        encode_commit(dataclasses.replace(GOLDEN_COMMIT, **fields))  # type: ignore[arg-type]


def test_a_boundary_moved_between_two_texts_changes_the_hash() -> None:
    one = dataclasses.replace(GOLDEN_COMMIT, writer_id="ab", message="c")
    other = dataclasses.replace(GOLDEN_COMMIT, writer_id="a", message="bc")
    assert commit_hash(one) != commit_hash(other)


@pytest.mark.parametrize("field", ["hash", "parent_hash", "nonce"])
def test_a_commit_forged_under_a_sound_checksum_does_not_pass_its_hash(field: str) -> None:
    message = pb.Commit.FromString(unwrap(MessageType.COMMIT, KINDS["commit"][1], "here"))
    setattr(message, field, bytes(len(getattr(message, field))))
    with pytest.raises(InvalidObject, match="commit hash"):
        decode_commit(wrap(MessageType.COMMIT, message.SerializeToString()), "here")


def test_the_nonce_of_a_delete_is_over_the_bytes_that_the_docstring_lists() -> None:
    salt = bytes(range(8))
    assert delete_nonce(salt + b"others", 7) == salt + blake3(b"SGD1" + salt + (7).to_bytes(8, "little")).digest()[:8]


def test_the_nonce_of_a_load_is_over_the_bytes_that_the_docstring_lists() -> None:
    mark = GOLDEN_LOAD_COMMIT.load
    assert mark
    assert load_nonce(mark) == blake3(b"SGL1" + bytes(range(16)) + mark.key.encode()).digest()[:16]


@pytest.mark.parametrize(("field", "value"), [("key", "another"), ("salt", bytes(16)), ("salt", b"short")])
def test_a_key_forged_under_a_sound_checksum_does_not_pass_the_nonce(field: str, value: object) -> None:
    message = pb.Commit.FromString(unwrap(MessageType.COMMIT, KINDS["load_commit"][1], "here"))
    setattr(message.load, field, value)
    with pytest.raises(InvalidObject, match=r"nonce|bytes"):
        decode_commit(wrap(MessageType.COMMIT, message.SerializeToString()), "here")


def test_software_from_before_loads_reads_a_load_as_a_sound_offload() -> None:
    message = pb.Commit.FromString(unwrap(MessageType.COMMIT, KINDS["load_commit"][1], "here"))
    message.ClearField("load")
    found = decode_commit(wrap(MessageType.COMMIT, message.SerializeToString()), "here")
    assert found == StoredCommit(dataclasses.replace(GOLDEN_LOAD_COMMIT, load=None), commit_hash(GOLDEN_LOAD_COMMIT))


def test_becoming_a_checkpoint_changes_no_hash() -> None:
    message = pb.Commit.FromString(unwrap(MessageType.COMMIT, KINDS["commit"][1], "here"))
    message.checkpoint_ts.FromMilliseconds(1)
    assert decode_commit(wrap(MessageType.COMMIT, message.SerializeToString()), "here") == KINDS["commit"][0]


# ---------------------------------------------------------------- identity, and impossible values


def test_a_commit_under_another_key_is_in_the_wrong_place() -> None:
    body, _ = encode_commit(GOLDEN_COMMIT)
    for volume, lsn in ((vid(1), 8), (vid(3), 7)):
        with pytest.raises(InvalidObject, match="wrong place"):
            decode_commit_at(body, volume, lsn)


def test_a_control_under_another_volume_is_refused() -> None:
    with pytest.raises(InvalidObject, match=f"{vid(3)}/control"):
        decode_control_of(encode_control(GOLDEN_CONTROL), vid(3))


@pytest.mark.parametrize(
    "change",
    [{"nonce": b"short"}, {"parent_hash": b""}, {"lsn": 2**64}, {"lsn": 0}, {"at_seq": -1}, {"epoch": 2**64},
     {"load": LoadMark("", bytes(16))}, {"segments": (dataclasses.replace(segment(1, 2), data_hash=b""),)}],
)  # fmt: skip
def test_a_commit_that_no_object_could_hold_is_not_encoded(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        encode_commit(dataclasses.replace(GOLDEN_COMMIT, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: setattr(m, "kind", 0),
        lambda m: setattr(m.segments[0], "codec", 0),
        lambda m: setattr(m.segments[0], "first_seq", 101),
        lambda m: setattr(m.segments[0], "sid", b""),
        lambda m: setattr(m.snapshot, "vid", bytes(16)),
        lambda m: setattr(m.snapshot, "lsn", 0),
        lambda m: setattr(m.deletions.segments[0], "bitmap", b"no bitmap"),
        lambda m: m.deletions.segments.append(m.deletions.segments[0]),
        lambda m: setattr(m.created_at, "nanos", -1),
    ],
)
def test_a_sound_envelope_with_an_impossible_value_is_invalid(spoil: Callable[[pb.Commit], None]) -> None:
    message = pb.Commit.FromString(unwrap(MessageType.COMMIT, KINDS["commit"][1], "here"))
    spoil(message)
    with pytest.raises(InvalidObject, match="here: "):
        decode_commit(wrap(MessageType.COMMIT, message.SerializeToString()), "here")


def test_the_field_numbers_of_grafts_rfc_are_kept() -> None:
    numbers = {
        "Control": {"vid": 1, "parent": 2, "created_at": 3},
        "VolumeRef": {"vid": 1, "lsn": 2},
        "Fork": {"fork_vid": 1, "parent": 2},
        "Snapshot": {"vid": 1, "lsn": 2},
        "Commit": {"snapshot": 1, "hash": 2, "segments": 3, "checkpoint_ts": 4},
        "SegmentRef": {"sid": 1},
    }
    for message, kept in numbers.items():
        found = {field.name: field.number for field in pb.DESCRIPTOR.message_types_by_name[message].fields}
        assert {name: number for name, number in found.items() if number < 16} == kept


def test_views_that_share_a_seq_are_refused() -> None:
    views = (SegmentView(segment(1, 10), vid(1), 1, 1, 10), SegmentView(segment(10, 20), vid(1), 2, 10, 20))
    with pytest.raises(InvalidObject, match="overlap"):
        decode_views(encode_views(views), "here")
    apart = (views[0], dataclasses.replace(views[1], first=11))
    assert decode_views(encode_views(apart), "here") == apart


def test_a_segment_with_more_live_records_than_seqs_is_refused() -> None:
    wrong = dataclasses.replace(segment(11, 20), live_records=11)
    body, _ = encode_commit(dataclasses.replace(GOLDEN_COMMIT, segments=(wrong,)))
    with pytest.raises(InvalidObject, match="11 live records"):
        decode_commit(body, "here")
