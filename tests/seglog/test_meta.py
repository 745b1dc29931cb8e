from __future__ import annotations

from pathlib import Path

import pytest

from seglog.config import TopicConfig
from seglog.deletes import DeleteOp
from seglog.errors import FileCorrupt
from seglog.floors import Floors
from seglog.meta import ActiveMeta, DeadMeta, Snapshot, TopicMeta, WalPosition, decode_snapshot, encode_snapshot
from seglog.segment import SegmentInfo

SNAPSHOT = Snapshot(
    next_topic_id=3,
    topics=(
        TopicMeta(
            topic_id=2,
            name="orders@fix",
            epoch=1,
            config=TopicConfig("disk", True, {"codec": "zstd"}),
            first_seq=101,
            hot_floor=111,
            sealed_seq=120,
            active=ActiveMeta(121, 5, 500),
            head_seq=127,
            dead=(DeadMeta(111, 2, 93), DeadMeta(121, 1, 60)),
            last_ts_ms=1720000000661,
            next_op=2,
            ops=(DeleteOp(1, 104, 1720000000000, None, "ü*"),),
            floors=Floors(115, 103, 112),
            is_ahead=True,
            cold=(SegmentInfo(111, 114, 400, 1720000000000, 1720000000061, sealed=True, cold_check=0xAB),),
            cold_ops=(DeleteOp(1, 104, 1720000000000, None, "ü*"),),
        ),
    ),
    wal=(WalPosition(17, 4096, 99), WalPosition(200000000000001, 0, 200000000000001)),
    deleted=(1,),
    epoch_floor=4,
    doomed=((1, 21), (2, 101)),
)
PLACE = Path("meta/snapshot.0000000000000001.json")
GOLDEN = (
    '{"deleted":[1],"doomed":[[1,21],[2,101]],"epoch_floor":4,"format":1,"next_topic_id":3,"topics":[{'
    '"active":[121,5,500],"cold":[[111,114,400,1720000000000,1720000000061,"00000000000000ab"]],'
    '"cold_ops":[{"at_seq":104,"before":null,"op":1,"tag":"ü*","ts_ms":1720000000000}],'
    '"config":{"attributes":{"codec":"zstd"},"cap_bytes":null,"cap_records":null,"discard":"old","durability":"disk",'
    '"keep_history":true,"ttl_ms":null},"dead":[[111,2,93],[121,1,60]],'
    '"earliest_seq":115,"epoch":1,"evict_floor":112,"evict_from":103,'
    '"first_seq":101,"head_seq":127,"hot_floor":111,"id":2,"is_ahead":true,"last_ts_ms":1720000000661,'
    '"name":"orders@fix","next_op":2,'
    '"ops":[{"at_seq":104,"before":null,"op":1,"tag":"ü*","ts_ms":1720000000000}],"sealed_seq":120}],'
    '"wal":[{"file":17,"offset":4096,"ordinal":99},'
    '{"file":200000000000001,"offset":0,"ordinal":200000000000001}]}\n673f876825127e0b\n'
)


def test_the_bytes_are_pinned() -> None:
    assert encode_snapshot(SNAPSHOT).decode() == GOLDEN


def test_what_goes_in_comes_out() -> None:
    assert decode_snapshot(encode_snapshot(SNAPSHOT), PLACE) == SNAPSHOT


def test_no_truncation_and_no_flipped_byte_passes() -> None:
    raw = encode_snapshot(SNAPSHOT)
    for position in range(len(raw)):
        damaged = bytearray(raw)
        damaged[position] ^= 0x20
        for body in (raw[:position], bytes(damaged)):
            with pytest.raises(FileCorrupt):
                decode_snapshot(body, PLACE)
