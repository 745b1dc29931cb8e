"""Test what the daemon decides about streams without I/O: names, offsets, cursors, messages, marks, headers."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.daemon.reserved import STREAMS_TOPIC
from offload.daemon.streams.entries import Entry, State, decode_entry, encode_entry
from offload.daemon.streams.errors import StreamRefused
from offload.daemon.streams.live import Mark, mark_of
from offload.daemon.streams.messages import control_event, data_event, joined, messages
from offload.daemon.streams.requests import (
    Fork,
    append_of,
    create_of,
    cursor,
    offset_text,
    parsed_offset,
    path_of,
    read_of,
    source_path,
    topic_name,
)
from offload.errors import Refused
from seglog.values.names import check_topic_name

_NOW_MS = 1_790_000_000_000
MOST = 1_000

paths = st.text(st.characters(codec="utf-8"), min_size=1, max_size=10)


@given(paths, paths)
def test_two_paths_never_have_one_name(one: str, other: str) -> None:
    assert (topic_name(one) == topic_name(other)) == (one == other)


@given(paths)
def test_each_name_is_a_topics_and_never_the_registrys(path: str) -> None:
    name = check_topic_name(topic_name(path))
    assert "@" not in name
    assert name != STREAMS_TOPIC


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"orders/eu-1", "orders.eu-1"),
        (b"orders%2feu-1", "orders.eu-1"),
        (b"..%2f..%2fetc", "_2e_2e._2e_2e.etc"),
        (b"/a", "_2fa"),
        (b"-a", "_2da"),
        (b"a%00b", "a_00b"),
        (b"_streams", "__streams"),
        ("ä".encode(), "_c3_a4"),
    ],
)
def test_a_path_has_this_name(raw: bytes, name: str) -> None:
    assert topic_name(path_of(raw)) == name


@pytest.mark.parametrize("raw", [b"", b"%ff", b"__ds/subscriptions/1", b"%5f_ds"])
def test_a_path_that_is_none_is_refused(raw: bytes) -> None:
    with pytest.raises(StreamRefused, match="path: "):
        path_of(raw)


@pytest.mark.parametrize("path", ["a" * 129, "a" * 1024, "ä" * 22])
def test_a_path_that_is_too_long_is_refused_and_never_cut(path: str) -> None:
    with pytest.raises(StreamRefused, match="128"):
        topic_name(path)
    assert len(topic_name("a" * 128)) == 128


def test_the_source_of_a_fork_is_a_path_of_a_url_with_the_root_or_without() -> None:
    assert source_path("/streams/a/b") == source_path("/a/b") == source_path("a/b") == "a/b"
    assert source_path("/streams/" + quote("ä b")) == "ä b"


@given(st.lists(st.tuples(st.integers(1, 10**15), st.integers(0, 10**15)), min_size=2))
def test_offsets_sort_as_their_positions_do(places: list[tuple[int, int]]) -> None:
    assert sorted(places) == [parsed_offset(text) for text in sorted(offset_text(*each) for each in places)]


@pytest.mark.parametrize(
    "text", ["", "1", "-2", "0000000000000000-0000000000000000", "1" * 33, "\u0660" * 16 + "_" + "0" * 16]
)
def test_another_text_is_no_offset(text: str) -> None:
    assert parsed_offset(text) is None
    with pytest.raises(StreamRefused):
        read_of([("offset", text)], {})


def test_a_cursor_never_stays_where_the_client_has_it() -> None:
    current = cursor(_NOW_MS, None, 0.0)
    assert cursor(_NOW_MS, "1", 0.5) == current
    assert int(cursor(_NOW_MS, current, 0.0)) == int(current) + 1
    assert int(cursor(_NOW_MS, str(int(current) + 500), 0.99)) > int(current) + 500
    assert cursor(_NOW_MS, "x" * 99, 0.5) == current


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('{"a": 1.0}', ['{"a": 1.0}']),
        (' [1e400, "x,]" ,[2,[3]] ]\n', ["1e400", '"x,]"', "[2,[3]]"]),
        ("[]", []),
        ("[[]]", ["[]"]),
        ('"ä"', ['"ä"']),
        ("12345678901234567890123", ["12345678901234567890123"]),
    ],
)
def test_an_array_is_flattened_by_one_level_and_each_message_keeps_its_bytes(body: str, found: list[str]) -> None:
    assert messages("application/json; charset=utf-8", body.encode(), MOST) == [each.encode() for each in found]


@pytest.mark.parametrize(
    "body", [b"{", b"[1,]", b"[1 2]", b"[1]x", b"1 2", b"NaN", b"[-Infinity]", b'"\xff"', b" ", b"[" * 100_000]
)
def test_a_body_that_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(StreamRefused, match="body"):
        messages("application/json", body, MOST)


def test_an_array_has_a_bounded_number_of_messages() -> None:
    assert len(messages("application/json", b"[0,0,0]", 3)) == 3
    with pytest.raises(Refused, match="at most 3 records"):
        messages("application/json", b"[0,0,0,", 3)


@given(st.lists(st.none() | st.integers() | st.text() | st.lists(st.text()), min_size=1))
def test_messages_joined_are_the_array_that_came(values: list[object]) -> None:
    found = messages("application/json", json.dumps(values).encode(), MOST)
    assert len(found) == len(values)
    assert json.loads(joined("application/json", found)) == values


def _lines(event: bytes) -> bytes:
    """Return the data of one event, as a client of server-sent events takes it."""
    assert event.endswith(b"\n\n")
    assert b"\n\n" not in event[:-2]
    lines = event[:-2].split(b"\n")
    assert lines[0] == b"event: data"
    return b"\n".join(each.removeprefix(b"data:").removeprefix(b" ") for each in lines[1:])


@given(st.text(st.sampled_from(" a\n\rd:"), min_size=1))
def test_no_value_ends_an_event(text: str) -> None:
    expected = text.replace("\r\n", "\n").replace("\r", "\n").encode()
    assert _lines(data_event("text/plain", [text.encode()])) == expected


def test_other_bytes_come_in_base64() -> None:
    assert _lines(data_event("image/png", [b"\x00\n", b"\xff"])) == b"AAr/"
    assert control_event({"upToDate": True}) == b'event: control\ndata:{"upToDate": true}\n\n'


@given(st.booleans(), st.none() | st.text())
def test_a_mark_is_read_as_it_was_written(is_closed: bool, seq: str | None) -> None:
    mark = Mark(is_closed, seq)
    assert mark_of(mark.tag) == mark


@pytest.mark.parametrize("tag", [None, "stream", "eu", "closed", "streams;closed"])
def test_a_tag_of_another_append_is_no_mark(tag: str | None) -> None:
    assert mark_of(tag) == Mark()


def test_an_entry_is_read_as_it_was_written() -> None:
    entry = Entry("a/b", "a.b", "text/plain", 5, None, 3, 7, Fork("s", "0" * 16 + "_" + "0" * 16, 2), State.SOFT)
    assert decode_entry(encode_entry(entry)) == entry
    with pytest.raises(ValueError, match="no entry"):
        decode_entry(b'{"path": "a"}')


@pytest.mark.parametrize("ttl", ["", "-1", "+1", "01", "1.0", "1e3", "٣", "9" * 20])
def test_a_time_to_live_is_a_plain_number(ttl: str) -> None:
    with pytest.raises(StreamRefused, match="TTL"):
        create_of({"stream-ttl": ttl})


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-11-23", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00"])
def test_an_expiry_is_a_time_with_its_zone(text: str) -> None:
    with pytest.raises(StreamRefused, match="Expires"):
        create_of({"stream-expires-at": text})


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text"},
        {"content-type": "text/plain; a\r\nx: y"},
        {"content-type": "text/" + "x" * 300},
        {"stream-fork-offset": "-1"},
        {"stream-fork-sub-offset": "0"},
        {"stream-forked-from": "/a", "stream-fork-sub-offset": "1"},
        {"stream-forked-from": "/a", "stream-fork-offset": "x"},
        {"stream-forked-from": ""},
        {"stream-ttl": "1", "stream-expires-at": "2030-01-01T00:00:00Z"},
    ],
)
def test_a_put_with_a_header_that_is_wrong_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(StreamRefused):
        create_of(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"producer-id": "a"},
        {"producer-id": "", "producer-epoch": "0", "producer-seq": "0"},
        {"producer-id": "a", "producer-epoch": "-1", "producer-seq": "0"},
        {"producer-id": "a", "producer-epoch": "0", "producer-seq": str(2**53)},
        {"stream-seq": "x" * 1025},
    ],
)
def test_a_post_with_a_header_that_is_wrong_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(StreamRefused):
        append_of(headers)


@pytest.mark.parametrize("value", ["false", "yes", "1", ""])
def test_only_true_closes(value: str) -> None:
    assert not append_of({"stream-closed": value}).closes
    assert append_of({"stream-closed": "TRUE"}).closes


@pytest.mark.parametrize("request_of", [create_of, append_of])
def test_an_encoded_body_is_refused_as_a_stream_holds_the_bytes_as_they_come(request_of: Callable[..., object]) -> None:
    with pytest.raises(Refused, match="gzip") as error:
        request_of({"content-encoding": "gzip"})
    assert error.value.status == 415
    request_of({"content-encoding": "Identity"})
