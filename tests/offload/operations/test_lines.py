from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.errors import InvalidInput
from offload.operations.record_text import json_batches, line_batches, longest_line, to_json, to_line
from seglog import Record
from tests.seams.limits import Limit, set_limit

TEXTS = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"\xff\x00", b"long" * 50])).map(b"".join)


def _records(text: bytes) -> list[Record]:
    batches = line_batches(io.BytesIO(text), None, None, 1 << 24)
    values = [(value, batch.unterminated) for batch in batches for value in batch.values]
    return [Record(seq, 0, value, unterminated=flag) for seq, (value, flag) in enumerate(values, 1)]


@given(TEXTS)
def test_any_text_comes_back(text: bytes) -> None:
    assert b"".join(map(to_line, _records(text))) == text


@pytest.mark.parametrize("lines_in_a_batch", [1, 2, 1000])
@settings(deadline=None)
@given(text=TEXTS)
def test_any_text_comes_back_from_many_reads_and_batches(lines_in_a_batch: int, text: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        set_limit(patch, Limit.READ_OF_LINES_BYTES, 100)
        set_limit(patch, Limit.TEXT_IN_A_LIST_BYTES, 10)
        set_limit(patch, Limit.LINES_IN_A_BATCH, lines_in_a_batch)
        batches = list(line_batches(io.BytesIO(text), None, None, 1 << 24))
        assert b"".join(map(to_line, _records(text))) == text
    assert sum(batch.size_bytes for batch in batches) == len(text)
    assert all(batch.line_count == len(batch.values) for batch in batches)


@given(TEXTS)
def test_records_are_what_stands_between_line_feeds(text: bytes) -> None:
    assert [record.value for record in _records(text)] == text.removesuffix(b"\n").split(b"\n") if text else True


def test_lines_that_span_reads_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, Limit.READ_OF_LINES_BYTES, 7)
    text = b"a\n" + b"x" * 50 + b"\n\n\nend"
    assert b"".join(map(to_line, _records(text))) == text
    for at_least in (0, 3, 7, 30, 49, 50, 51):
        assert longest_line(io.BytesIO(text), at_least) == max(50, at_least)


@settings(deadline=None)
@given(TEXTS)
def test_the_longest_line_is_found(text: bytes) -> None:
    longest = max(map(len, text.split(b"\n")))
    assert longest_line(io.BytesIO(text)) == longest
    for at_least in (1, 7, 100, 1000):
        assert longest_line(io.BytesIO(text), at_least) == max(longest, at_least)


@given(st.binary(), st.none() | st.text(max_size=5), st.none() | st.text(max_size=5), st.booleans())
def test_json_lines_come_back(value: bytes, tag: str | None, node: str | None, unterminated: bool) -> None:
    line = to_json(Record(7, 8, value, tag, node, unterminated))
    assert json.loads(line)["seq"] == 7
    [batch] = json_batches(io.BytesIO(line.encode() + b"\n\n"), None, None)
    assert (batch.values, batch.tag, batch.node, batch.unterminated) == ([value], tag, node, unterminated)


def test_records_with_another_tag_are_another_batch() -> None:
    lines = b"".join(b'{"value": "x", "tag": "%s"}\n' % tag for tag in (b"a", b"a", b"b", b"a"))
    batches = list(json_batches(io.BytesIO(lines), None, None))
    assert [(batch.tag, len(batch.values)) for batch in batches] == [("a", 2), ("b", 1), ("a", 1)]


def test_the_line_that_is_wrong_is_named() -> None:
    with pytest.raises(InvalidInput, match="`unterminated` that is neither"):
        list(json_batches(io.BytesIO(b'{"value": "x", "unterminated": 1}\n'), None, None))
    with pytest.raises(InvalidInput, match="line 3"):
        list(json_batches(io.BytesIO(b'{"value": "x"}\n\n{"value": 1}\n'), None, None))
