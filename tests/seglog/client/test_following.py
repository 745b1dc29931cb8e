"""Test followers of several topics without a connection: events in pieces, positions, truncations, acks."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.client.connections import Answer, Request
from seglog.client.following import Followed, FollowingTopics, Taking, following_topics
from seglog.client.sse import Event, EventParser
from seglog.errors import DaemonError, InvalidArgument, InvalidName, Misuse, NoSuchTopic, Truncated
from seglog.values.protocols import FollowTopicsArguments
from seglog.values.record import Gap, Record
from tests.seams.delivery import acks_of, taken_by

BEGUN = Answer(200, {"content-type": "text/event-stream; charset=utf-8"})


def line(topic: str, seq: int, value: str = "v") -> dict[str, Any]:
    return {"topic": topic, "schema": 1, "kind": "record", "seq": seq, "ts_ms": 5, "value": value}


def event(kind: str, data: Any, event_id: str = "") -> bytes:
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


STREAM = (
    b"retry: 1000\nid: orders:1-0,web:1-5\n\n"
    + event("record", line("orders", 1, "a b"), "orders:1-1,web:1-5")
    + b":\n\n"
    + event("gap", {"topic": "web", "kind": "gap", "gap_from": 6, "gap_to": 8}, "orders:1-1,web:1-8")
    + event("records", [line("web", 9), line("web", 11), line("web", 12)], "orders:1-1,web:1-12")
    + b":\nid: orders:1-2,web:1-12\n\n"
    + event("record", line("orders", 3), "orders:1-3,web:1-12")
    + event("end", {"reason": "stopping"})
)
POSITIONS = (
    "orders:1-1,web:1-5", "orders:1-1,web:1-8", "orders:1-1,web:1-9", "orders:1-1,web:1-11", "orders:1-1,web:1-12",
    "orders:1-3,web:1-12",
)  # fmt: skip


def follower(*topics: str, **options: Any) -> FollowingTopics:
    return following_topics(topics or ("orders:1", "web"), cast("FollowTopicsArguments", options))


def taken(source: FollowingTopics, *pieces: bytes) -> tuple[FollowingTopics, list[Any]]:
    source, items = source.begun(BEGUN), list[Any]()
    for piece in pieces:
        source, found, error, _ = source.fed(piece)
        assert error is None
        items += found
    return source, items


def test_records_and_gaps_come_with_the_position_of_all_topics_behind_them() -> None:
    source, items = taken(follower(), STREAM)
    assert [each.position for each in items] == [*POSITIONS]
    assert source.position == "orders:1-3,web:1-12"
    topic, record = items[0]
    assert (topic, record) == ("orders", Record(1, 5, b"a b", None, None, False))
    assert (items[1].topic, items[1].record) == ("web", Gap(6, 8))
    assert [(each.topic, each.record.seq, each.epoch) for each in items[2:5]] == [
        ("web", 9, 1), ("web", 11, 1), ("web", 12, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("size", range(1, 70))
def test_pieces_of_any_size_make_the_same_items(size: int) -> None:
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert taken(follower(), *pieces) == taken(follower(), STREAM)


def test_a_connection_that_ends_at_any_byte_is_asked_for_again_behind_the_last_whole_event() -> None:
    for size in range(len(STREAM) + 1):
        source, items = taken(follower(), STREAM[:size])
        ids = [None, "orders:1-0,web:1-5", *POSITIONS, "orders:1-2,web:1-12"]
        assert source.position in ids
        # A record that the caller has is below the position, and each other one above it.
        assert [each.position for each in items] == [*POSITIONS[: len(items)]]
        request = source.request
        assert request.headers.get("Last-Event-ID") == source.position
        again, rest = taken(source.begun(BEGUN), STREAM[_end_of_block(source.position) :])
        assert [each.position for each in (*items, *rest)] == [*POSITIONS]
        assert again.position == POSITIONS[-1]


def _end_of_block(position: str | None) -> int:
    """Return where a daemon would continue behind a position."""
    if position is None:
        return 0
    return STREAM.index(b"\n\n", STREAM.index(f"id: {position}\n".encode())) + 2


def test_an_answer_that_ends_after_its_first_lines_is_no_progress() -> None:
    source = follower("orders", position="orders:1-4").begun(BEGUN)
    source, _, _, is_progress = source.fed(b"retry: 1000\nid: orders:1-4\n\n")
    assert not is_progress
    assert source.fed(b":\n\n").is_progress, "the connection lives"
    assert source.fed(b":\nid: orders:1-5\n\n").is_progress
    assert source.fed(event("record", line("orders", 5), "orders:1-5")).is_progress


def test_the_request_names_topics_and_options() -> None:
    asked = follower("orders:1", "web@try", cursor="billing", tag="a&b", gaps=True, strong=True, position="web@try:1-2")
    assert asked.request == Request(
        "GET",
        "/events?topic=orders%3A1&topic=web%40try&cursor=billing&tag=a%26b&gaps=1&consistency=strong",
        {"Accept": "text/event-stream", "Last-Event-ID": "web@try:1-2"},
        topic="orders",
    )
    assert follower("web").request.path == "/events?topic=web"


@pytest.mark.parametrize(
    ("topics", "options", "error"),
    [
        ((), {}, InvalidArgument),
        (tuple(f"t{number}" for number in range(33)), {}, InvalidArgument),
        (("orders", "orders"), {}, InvalidArgument),
        (("orders", "orders:5"), {}, InvalidArgument),
        (("orders:",), {}, InvalidArgument),
        (("orders:x",), {}, InvalidArgument),
        (("or ders",), {}, InvalidName),
        (("",), {}, InvalidName),
        (("orders",), {"position": "x\r\nHost: y"}, InvalidArgument),
        (("orders",), {"position": ""}, InvalidArgument),
    ],
)
def test_wrong_arguments_are_refused_before_any_request(topics: Any, options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        following_topics(topics, options)


def test_a_truncation_is_raised_and_the_follower_goes_on_behind_it() -> None:
    stream = (
        event("record", line("orders", 1), "orders:1-1,web:1-5")
        + event("truncated", {"topic": "orders", "from": 1}, "orders:2-0,web:1-5")
        + event("record", line("orders", 1, "other"), "orders:2-1,web:1-5")
    )
    _, items = taken(follower(), stream)
    taking = Taking(follower(), None)
    assert taken_by(taking, items[0]).record.value == b"v"  # type: ignore[union-attr]
    with pytest.raises(Truncated) as cut:
        taken_by(taking, items[1])
    assert (cut.value.topic, cut.value.seq, cut.value.epoch) == ("orders", 1, 2)
    assert taking.position == "orders:2-0,web:1-5"
    assert taken_by(taking, items[2]).epoch == 2


@pytest.mark.parametrize(
    ("piece", "error"),
    [
        (event("end", {"reason": "error", "topic": "web", "error": {
            "error": "NoSuchTopic", "class": "seglog.errors.NoSuchTopic", "message": "no topic",
            "fields": {"name": "web"},
        }}), NoSuchTopic),
        (event("end", {"reason": "error", "error": {"message": "a disk broke"}}), DaemonError),
        (event("record", {"topic": "web"}, "web:1-1"), DaemonError),
        (event("record", [1], "web:1-1"), DaemonError),
        (event("records", {"a": 1}, "web:1-1"), DaemonError),
        (event("truncated", {"topic": "absent", "from": 1}, "web:1-1"), DaemonError),
        (b"event: record\ndata: {\n\n", DaemonError),
    ],
)  # fmt: skip
def test_an_error_at_the_end_and_an_event_that_is_none_end_the_follower(piece: bytes, error: type[Exception]) -> None:
    first = event("record", line("web", 1), "web:1-1")
    _, items, found, _ = follower("web").begun(BEGUN).fed(first + piece)
    assert type(found) is error
    assert len(items) == 1


def test_bytes_that_are_no_text_end_the_follower_with_an_error_of_this_package() -> None:
    _, items, found, _ = follower("web").begun(BEGUN).fed(b"data: \xff\n\n")
    assert (items, type(found)) == ([], DaemonError)


def test_acks_are_one_request_for_each_topic_and_epoch() -> None:
    taking = Taking(follower(cursor="bil/ling"), "bil/ling")
    found = [
        Followed("orders", Record(4, 1, b"", None, None, False), "orders:1-4,web:1-1"),
        Followed("web", Record(1, 1, b"", None, None, False), "orders:1-4,web:1-1"),
        Followed("orders", Gap(5, 6), "orders:1-6,web:1-1"),
        Followed("orders", Record(7, 1, b"", None, None, False), "orders:1-7,web:1-1"),
        Followed("orders", Record(2, 1, b"", None, None, False), "orders:2-2,web:1-1"),
    ]
    assert [(each.method, each.path, json.loads(each.body), each.is_repeatable) for each in acks_of(taking, found)] == [
        ("POST", "/topics/orders/cursors/bil%2Fling/acks", {"seqs": [4, 7], "epoch": 1}, True),
        ("POST", "/topics/web/cursors/bil%2Fling/acks", {"seqs": [1], "epoch": 1}, True),
        ("POST", "/topics/orders/cursors/bil%2Fling/acks", {"seqs": [2], "epoch": 2}, True),
    ]
    with pytest.raises(InvalidArgument, match="records"):
        acks_of(taking, [cast("Followed", found[0].record)])
    with pytest.raises(Misuse, match="no cursor"):
        acks_of(Taking(follower(), None), found)


FIELD = st.tuples(st.sampled_from(["data", "id", "event", "retry", "x"]), st.text("ab: é{}", max_size=5))


@given(st.lists(st.lists(FIELD, min_size=1, max_size=4), max_size=5), st.sampled_from(["\n", "\r\n"]), st.data())
def test_the_parser_gives_the_same_events_however_the_bytes_are_cut(
    blocks: list[list[tuple[str, str]]], end: str, data: st.DataObject
) -> None:
    text = "".join("".join(f"{name}: {value}{end}" for name, value in block) + end for block in blocks).encode()
    whole = EventParser().fed(text)[1]
    cut = data.draw(st.integers(0, len(text)))
    parser, first, _ = EventParser().fed(text[:cut])
    parser, second, _ = parser.fed(text[cut:])
    assert first + second == whole
    assert len(whole) == len(blocks)
    for block, found in zip(blocks, whole, strict=True):
        values = [value for name, value in block if name == "data"]
        assert found.data == "\n".join(values)
        assert found.id == dict(block).get("id")
        assert isinstance(found, Event)
