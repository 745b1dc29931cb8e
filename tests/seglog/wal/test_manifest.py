from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from xxhash import xxh3_64_hexdigest

from seglog.errors import FileCorrupt
from seglog.segments.segment import SegmentInfo
from seglog.values.append_key import Key
from seglog.values.config import TopicConfig
from seglog.values.deletes import DeleteOp, Floors, TruncateOp
from seglog.values.producer import Batch, Producer
from seglog.values.seq_set import SeqSet
from seglog.values.written_elsewhere import Elsewhere
from seglog.wal.manifest import (
    ActiveMeta,
    Encoder,
    LogManifest,
    TopicMeta,
    WalPosition,
    decode_manifest,
    encode_manifest,
)
from tests.seams.log import note_encoded

SEALED = (
    SegmentInfo(111, 114, 400, 1720000000000, 1720000000061, True, 0xAB, 1, 46),
    SegmentInfo(115, 118, 300, 1720000000061, 1720000000062, True, None, 2, 93),
    SegmentInfo(119, 120, 200, 1720000000062, 1720000000062, True),
)
MANIFEST = LogManifest(
    next_topic_id=3,
    topics=(
        TopicMeta(
            topic_id=2,
            name="orders@fix",
            epoch=1,
            config=TopicConfig("disk", True, {"codec": "zstd"}),
            first_seq=101,
            hot_floor=111,
            active=ActiveMeta(121, 5, 500, 1, 60),
            head_seq=127,
            last_ts_ms=1720000000661,
            next_op=2,
            ops=(DeleteOp(1, 104, 1720000000000, None, "ü*"),),
            floors=Floors(115, 103, 112),
            is_ahead=True,
            sealed=SEALED,
            warm_ops=(DeleteOp(1, 104, 1720000000000, None, "ü*"),),
            truncate_ops=(TruncateOp(128, 1720000000662, 2), TruncateOp(126, 1720000000663, 2)),
        ),
    ),
    wal=(WalPosition(17, 4096, 99), WalPosition(200000000000001, 0, 200000000000001)),
    deleted=(1,),
    epoch_floor=4,
    pending_warm_deletes=((1, 21), (2, 101)),
    mark_secret=2**64 - 1,
)
PLACE = Path("meta/snapshot.0000000000000001.json")
GOLDEN = (
    '{"deleted":[1],"doomed":[[1,21],[2,101]],"epoch_floor":4,"format":3,"mark_secret":18446744073709551615,'
    '"next_topic_id":3,"topics":[{'
    '"active":[121,5,500,1,60],'
    '"cold_ops":[{"at_seq":104,"before":null,"op":1,"tag":"ü*","ts_ms":1720000000000}],'
    '"config":{"attributes":{"codec":"zstd"},"cap_bytes":null,"cap_records":null,"discard":"old","durability":"disk",'
    '"keep_history":true,"ttl_ms":null},'
    '"cuts":[[128,1720000000662,2],[126,1720000000663,2]],'
    '"earliest_seq":115,"epoch":1,"evict_floor":112,"evict_from":103,'
    '"first_seq":101,"head_seq":127,"hot_floor":111,"id":2,"is_ahead":true,"last_ts_ms":1720000000661,'
    '"name":"orders@fix","next_op":2,'
    '"ops":[{"at_seq":104,"before":null,"op":1,"tag":"ü*","ts_ms":1720000000000}],'
    '"sealed":[114,400,1720000000000,1720000000061,1,46,171,'
    "118,300,1720000000061,1720000000062,2,93,null,120,200,1720000000062,1720000000062,0,0,null]}],"
    '"wal":[{"file":17,"offset":4096,"ordinal":99},'
    '{"file":200000000000001,"offset":0,"ordinal":200000000000001}]}\n4c0986cd94bac28f\n'
)


def test_the_bytes_are_pinned() -> None:
    assert encode_manifest(MANIFEST).decode() == GOLDEN


PRODUCERS = (
    ("prüfer", Producer(3, 1720000000061, (Batch(7, 101, 2), Batch(8, 104, 1)))),
    ('a "name"', Producer(0, 1720000000661, (Batch(2**63 - 1, 127, 1),))),
)
KEYS = (("schlüssel", Key(1720000000061, 101, 2, 2**64 - 1)), ('a "key"', Key(1720000000661, 127, 1, 0)))
WITH_KEYS = replace(MANIFEST, topics=(replace(MANIFEST.topics[0], keys=KEYS),))
WITH_PRODUCERS = replace(MANIFEST, topics=(replace(MANIFEST.topics[0], producers=PRODUCERS),))


def test_producers_are_pinned() -> None:
    raw = encode_manifest(WITH_PRODUCERS)
    rows = (
        '"producers":[["prüfer",3,1720000000061,7,101,2,8,104,1],'
        '["a \\"name\\"",0,1720000000661,9223372036854775807,127,1]],'
    )
    body = GOLDEN.rpartition("\n")[0].rpartition("\n")[0]
    assert raw.decode().rpartition("\n")[0].rpartition("\n")[0] == body.replace('"sealed":', rows + '"sealed":')
    assert decode_manifest(raw, PLACE) == WITH_PRODUCERS


def test_keys_are_pinned() -> None:
    raw = encode_manifest(WITH_KEYS)
    rows = '"keys":[["schlüssel",1720000000061,101,2,18446744073709551615],["a \\"key\\"",1720000000661,127,1,0]],'
    body = GOLDEN.rpartition("\n")[0].rpartition("\n")[0]
    assert raw.decode().rpartition("\n")[0].rpartition("\n")[0] == body.replace('"last_ts_ms":', rows + '"last_ts_ms":')
    assert decode_manifest(raw, PLACE) == WITH_KEYS


ELSEWHERE = (("a@fix", Elsewhere(is_fenced=True)), ("orders", Elsewhere(producers=PRODUCERS, keys=KEYS)))
WITH_ELSEWHERE = replace(MANIFEST, elsewhere=ELSEWHERE)


def test_topics_that_are_elsewhere_are_pinned_and_raise_the_format() -> None:
    raw = encode_manifest(WITH_ELSEWHERE)
    rows = (
        '"elsewhere":[{"is_fenced":true,"keys":[],"name":"a@fix","producers":[]},'
        '{"is_fenced":false,"keys":[["schlüssel",1720000000061,101,2,18446744073709551615],'
        '["a \\"key\\"",1720000000661,127,1,0]],"name":"orders",'
        '"producers":[["prüfer",3,1720000000061,7,101,2,8,104,1],'
        '["a \\"name\\"",0,1720000000661,9223372036854775807,127,1]]}],'
    )
    body = GOLDEN.rpartition("\n")[0].rpartition("\n")[0].replace('"format":3', '"format":4')
    pinned = body.replace('"epoch_floor":', rows + '"epoch_floor":')
    assert raw.decode().rpartition("\n")[0].rpartition("\n")[0] == pinned
    assert decode_manifest(raw, PLACE) == WITH_ELSEWHERE


@pytest.mark.parametrize("elsewhere", [(ELSEWHERE[0], ELSEWHERE[0]), (("a/b", ELSEWHERE[0][1]),), ((7, Elsewhere()),)])
def test_topics_that_are_elsewhere_twice_or_without_a_name_are_damage(
    elsewhere: tuple[tuple[str, Elsewhere], ...],
) -> None:
    with pytest.raises(FileCorrupt, match="does not fit"):
        decode_manifest(encode_manifest(replace(MANIFEST, elsewhere=elsewhere)), PLACE)


SEQS = SeqSet.of([(3, 3), (5, 9)])


def _with_op(op: DeleteOp) -> LogManifest:
    return replace(MANIFEST, topics=(replace(MANIFEST.topics[0], ops=(op,)), *MANIFEST.topics[1:]))


WITH_SEQS = replace(_with_op(DeleteOp(1, 120, 1_720_000_000_000, None, "eu", seqs=SEQS)), form=2)


def test_deletes_with_seqs_are_pinned_and_raise_the_format() -> None:
    raw, plain = encode_manifest(WITH_SEQS), encode_manifest(_with_op(DeleteOp(1, 120, 1_720_000_000_000, None, "eu")))
    body = plain.decode().partition("\n")[0].replace('"format":3', '"format":5')
    pinned = '{"at_seq":120,"before":null,"op":1,"seqs":[3,1,1,5],"tag":"eu","ts_ms":1720000000000}'
    assert raw.decode().partition("\n")[0] == body.replace(pinned.replace('"seqs":[3,1,1,5],', ""), pinned)
    assert decode_manifest(raw, PLACE) == WITH_SEQS
    both = replace(WITH_SEQS, elsewhere=ELSEWHERE)
    assert decode_manifest(encode_manifest(both), PLACE) == both


def test_an_encoder_forgets_producers_and_keys_that_are_gone() -> None:
    encoder = Encoder()
    lives = (WITH_PRODUCERS, WITH_KEYS, WITH_ELSEWHERE, WITH_SEQS, MANIFEST, replace(WITH_PRODUCERS, topics=()))
    for manifest in (MANIFEST, *lives):
        assert encoder.encode(manifest) == encode_manifest(manifest)


@pytest.mark.parametrize("version", [1, 2])
def test_the_formats_without_a_secret_are_read(version: int) -> None:
    body = GOLDEN.partition("\n")[0].replace('"format":3,"mark_secret":18446744073709551615', f'"format":{version}')
    raw = f"{body}\n{xxh3_64_hexdigest(body.encode())}\n".encode()
    assert decode_manifest(raw, PLACE) == replace(MANIFEST, mark_secret=0)


def test_a_manifest_of_the_newest_format_without_a_secret_is_damage() -> None:
    for raw in (
        encode_manifest(replace(MANIFEST, mark_secret=0)),
        encode_manifest(replace(MANIFEST, mark_secret=2**64)),
    ):
        with pytest.raises(FileCorrupt, match="does not fit"):
            decode_manifest(raw, PLACE)


@pytest.mark.parametrize(
    "producers",
    [
        (PRODUCERS[0], PRODUCERS[0]),
        (("", PRODUCERS[0][1]),),
        (("x" * 257, PRODUCERS[0][1]),),
        (("p", Producer(0, 1, ())),),
        (("p", Producer(0, 1, (Batch(2, 1, 1), Batch(1, 2, 1)))),),
        (("p", Producer(0, -1, (Batch(2, 1, 1),))),),
        (("p", Producer(0, 1, tuple(Batch(number, 1, 1) for number in range(6)))),),
        ((7, PRODUCERS[0][1]),),
    ],
)
def test_producers_that_do_not_fit_are_damage(producers: tuple[tuple[str, Producer], ...]) -> None:
    raw = encode_manifest(replace(MANIFEST, topics=(replace(MANIFEST.topics[0], producers=producers),)))
    with pytest.raises(FileCorrupt, match="does not fit"):
        decode_manifest(raw, PLACE)


@pytest.mark.parametrize(
    "keys",
    [
        (KEYS[0], KEYS[0]),
        (("", KEYS[0][1]),),
        (("x" * 257, KEYS[0][1]),),
        ((7, KEYS[0][1]),),
        (("k", Key(1, 0, 1, 0)),),
        (("k", Key(1, 1, 0, 0)),),
        (("k", Key(-1, 1, 1, 0)),),
        (("k", Key(1, 1, 1, 2**64)),),
        (("k", (1, 1, 1)),),
        (("k", (1, 1, 1, 1, 1)),),
    ],
)
def test_keys_that_do_not_fit_are_damage(keys: tuple[tuple[str, Key], ...]) -> None:
    raw = encode_manifest(replace(MANIFEST, topics=(replace(MANIFEST.topics[0], keys=keys),)))
    with pytest.raises(FileCorrupt, match="does not fit"):
        decode_manifest(raw, PLACE)


def test_what_goes_in_comes_out() -> None:
    assert decode_manifest(encode_manifest(MANIFEST), PLACE) == MANIFEST


def test_no_truncation_and_no_flipped_byte_passes() -> None:
    raw = encode_manifest(MANIFEST)
    for position in range(len(raw)):
        damaged = bytearray(raw)
        damaged[position] ^= 0x20
        for body in (raw[:position], bytes(damaged)):
            with pytest.raises(FileCorrupt):
                decode_manifest(body, PLACE)


def _changed(manifest: LogManifest, **changes: object) -> LogManifest:
    """Return the manifest with changes to its topic. No segment is active, so any sealed segments are valid."""
    [topic] = manifest.topics
    return replace(manifest, topics=(replace(topic, active=None, head_seq=200, **changes),))


def test_whatever_it_encoded_before_an_encoder_encodes_the_same() -> None:
    """Add segments, remove them at the front, and change them in the middle. Add and remove topics."""
    encoder = Encoder()
    sealed = tuple(SegmentInfo(seq, seq, 50 + seq, seq, seq, True) for seq in range(111, 140))
    flagged = (*sealed[:5], sealed[5]._replace(dead_records=1, dead_bytes=51), *sealed[6:])
    other = replace(MANIFEST.topics[0], topic_id=1, name="other")
    manifests = [
        MANIFEST,
        _changed(MANIFEST, sealed=sealed),
        _changed(MANIFEST, sealed=flagged),
        _changed(MANIFEST, sealed=flagged[3:], hot_floor=114),
        _changed(MANIFEST, sealed=flagged[3:20], hot_floor=114),
        _changed(MANIFEST, sealed=(*flagged[3:20], *sealed[20:]), hot_floor=114),
        _changed(MANIFEST, sealed=()),
        replace(MANIFEST, topics=(other, *MANIFEST.topics)),
        replace(MANIFEST, topics=(other,)),
        replace(MANIFEST, topics=()),
        MANIFEST,
    ]
    for manifest in manifests:
        body = encoder.encode(manifest)
        assert body == encode_manifest(manifest)
        assert decode_manifest(body, PLACE) == manifest


def test_what_did_not_change_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = tuple(SegmentInfo(seq, seq, 50, seq, seq, True) for seq in range(111, 211))
    topics = tuple(replace(MANIFEST.topics[0], topic_id=number, sealed=sealed) for number in range(1, 11))
    encoder = Encoder()
    encoder.encode(replace(MANIFEST, topics=topics))
    rows, topic_bodies = note_encoded(monkeypatch)
    more = replace(topics[3], sealed=(*sealed[1:], SegmentInfo(211, 220, 500, 211, 220, True)), hot_floor=112)
    equal = tuple(replace(topic, sealed=tuple(topic.sealed)) for topic in topics)
    manifest = replace(MANIFEST, topics=(*equal[:3], more, *equal[4:]))
    assert encoder.encode(manifest) == encode_manifest(manifest)
    rows.clear()
    topic_bodies.clear()
    encoder.encode(replace(manifest, wal=(WalPosition(18, 0, 100),)))
    assert (rows, topic_bodies) == ([], [])
    last = replace(more, sealed=(*more.sealed, SegmentInfo(221, 230, 500, 221, 230, True)))
    encoder.encode(replace(manifest, topics=(*equal[:3], last, *equal[4:])))
    assert ([info.first_seq for info in rows], [topic.topic_id for topic in topic_bodies]) == ([221], [4])


@pytest.mark.parametrize("head_seq", [0, 120, 124])
def test_a_head_below_the_segments_is_damage(head_seq: int) -> None:
    [topic] = MANIFEST.topics
    raw = encode_manifest(replace(MANIFEST, topics=(replace(topic, head_seq=head_seq),)))
    with pytest.raises(FileCorrupt, match="do not fit"):
        decode_manifest(raw, PLACE)
