"""Test the codec of server-sent events, by round trips and by the rules of the HTML standard."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.daemon.http.events import KEEP_ALIVE, encode_event
from tests.offload.daemon.events_of import Event, EventDecoder

NAMES = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: not text.startswith((" ", "\ufeff"))
)
DATA = st.text(st.characters(exclude_categories=["Cs"]))
EVENTS = st.lists(st.tuples(NAMES, DATA, st.none() | NAMES))


def cut(text: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(place, len(text)) for place in places})
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


def decoded(pieces: list[bytes]) -> list[Event]:
    decoder = EventDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


@given(EVENTS, st.lists(st.integers(0, 500)), st.booleans())
def test_events_arrive_as_they_were_sent_however_the_stream_is_cut(
    sent: list[tuple[str, str, str | None]], places: list[int], with_comments: bool
) -> None:
    stream, expected, last_id = b"", list[Event](), ""
    for name, data, event_id in sent:
        stream += encode_event(name, data, event_id) + (KEEP_ALIVE if with_comments else b"")
        last_id = last_id if event_id is None else event_id
        expected.append(Event(name, re.sub("\r\n|\r", "\n", data), last_id))
    assert decoded(cut(stream, places)) == expected


@given(EVENTS, st.sampled_from(["\r", "\r\n", "\n"]), st.lists(st.integers(0, 500)))
def test_all_line_ends_mean_the_same(sent: list[tuple[str, str, str | None]], end: str, places: list[int]) -> None:
    stream = b"".join(encode_event(*each) for each in sent).decode()
    assert decoded(cut(stream.replace("\n", end).encode(), places)) == decoded([stream.encode()])


@given(st.binary(), st.lists(st.integers(0, 100)))
def test_any_bytes_are_decoded_alike_however_they_are_cut(text: bytes, places: list[int]) -> None:
    assert decoded(cut(text, places)) == decoded([text])


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [Event("message", "YHOO\n+2\n10")]),
        (b": test\n\ndata: 1st\nid: 1\n\ndata:2nd\nid\n\ndata:  3rd\n\n", [("1st", "1"), ("2nd", ""), (" 3rd", "")]),
        (b"data\n\ndata\ndata\n\ndata:", [("", ""), ("\n", "")]),
        (b"data:test\n\ndata: test\n\n", [("test", ""), ("test", "")]),
        (b"\xef\xbb\xbfdata: x\n\n", [("x", "")]),
        (b"id: 1\n\ndata: x\n\n", [("x", "1")]),
        (b"id: a\0b\ndata: x\nretry: 5\nunknown: 1\n\n", [("x", "")]),
        (b"event: e\n\ndata: x\n\n", [("x", "")]),
        (b"data: \xff\n\n", [("\ufffd", "")]),
        (b"data: unfinished\n", []),
    ],
)  # fmt: skip
def test_the_examples_of_the_standard(stream: bytes, expected: list[object]) -> None:
    found = decoded([bytes([byte]) for byte in stream])
    assert found == [each if isinstance(each, Event) else Event("message", *each) for each in expected]  # type: ignore[misc]


@pytest.mark.parametrize("text", ["", "a\nb", "a\rb", "a\0"])
def test_a_name_or_id_that_a_reader_would_see_differently_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no name or id"):
        encode_event(text, "x")
    with pytest.raises(ValueError, match="no name or id"):
        encode_event("x", "x", text)
