"""Test the parts of a body: any cut of its bytes gives the same records, and memory holds one part."""

from __future__ import annotations

import json
import random
import struct

import pytest

from offload.daemon.http.bodies import (
    PART_BYTES,
    BodyForm,
    PartReader,
    batches_of,
    decode_lines,
    decode_values,
    form_of,
    joined,
    whole_part,
)
from offload.errors import InvalidInput, InvalidOption, Refused
from seglog import RecordTooLarge
from seglog.client.bodies import LINES_TYPE, VALUES_TYPE, encode_values
from tests.work import seed_of

JSON_TYPE = "application/x-ndjson"
LONGEST = 3 * PART_BYTES
KINDS = [VALUES_TYPE, LINES_TYPE, JSON_TYPE]


def form(kind: str) -> BodyForm:
    return form_of(kind, {})


def body_of(kind: str, values: list[bytes]) -> bytes:
    if kind == VALUES_TYPE:
        return encode_values(values)
    if kind == LINES_TYPE:
        return b"".join(value + b"\n" for value in values)
    return b"".join(
        json.dumps({"value": value.decode(), "tag": str(len(value) % 2)}).encode() + b"\n" for value in values
    )


def read(kind: str, pieces: list[bytes], longest: int = LONGEST) -> tuple[list[bytes], int]:
    """Return the values of the body, and the size of the largest part."""
    reader, parts = PartReader(form(kind), longest), []
    for piece in pieces:
        reader.feed(piece)
        while reader.is_full:
            parts.append(reader.take())
    parts.append(reader.end())
    assert sum(part.size_bytes for part in parts) == sum(map(len, pieces))
    values = [value for part in parts for batch in part.batches for value in batch.values]
    return values, max(part.size_bytes for part in parts)


def cut(body: bytes, rng: random.Random) -> list[bytes]:
    ends = sorted(rng.randrange(len(body) + 1) for _ in range(rng.randrange(40)))
    return [body[start:end] for start, end in zip([0, *ends], [*ends, len(body)], strict=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_any_cut_of_a_body_gives_its_records_in_order(kind: str) -> None:
    rng = random.Random(seed_of(f"parts of {kind}"))
    for _ in range(12):
        sizes = [rng.choice((0, 1, 40, 3_000, 300_000, 1_400_000)) for _ in range(rng.randrange(1, 30))]
        values = [bytes([97 + number % 26]) * size for number, size in enumerate(sizes)]
        body = body_of(kind, values)
        found, largest = read(kind, cut(body, rng))
        assert found == values
        assert largest <= max(PART_BYTES, max(sizes) + 64)


@pytest.mark.parametrize("kind", [VALUES_TYPE, LINES_TYPE])
def test_a_body_that_is_cut_off_is_refused_at_each_byte(kind: str) -> None:
    body = body_of(kind, [b"one", b"", b"three"])
    for end in range(len(body) + 1):
        is_whole = body_of(kind, read_whole(kind, body[:end])) == body[:end] if end else True
        try:
            read(kind, [body[:end]])
        except InvalidInput:
            assert not is_whole
        else:
            assert is_whole


def read_whole(kind: str, body: bytes) -> list[bytes]:
    try:
        return [value for batch in batches_of(form(kind), body, LONGEST) for value in batch.values]
    except InvalidInput:
        return []


def test_a_record_that_is_too_long_is_refused_before_it_comes() -> None:
    with pytest.raises(RecordTooLarge):
        read(VALUES_TYPE, [struct.pack("<I", LONGEST + 1) + bytes(PART_BYTES)])
    for kind, start in ((LINES_TYPE, b""), (JSON_TYPE, b'{"value": "')):
        with pytest.raises(RecordTooLarge):
            read(kind, [start, *[b"x" * PART_BYTES] * 40])


def test_an_error_behind_the_first_part_names_the_record_of_the_body() -> None:
    good = b'{"value": "x"}\n' * 100_000
    with pytest.raises(InvalidInput, match="line 100001 "):
        read(JSON_TYPE, [good, b"{\n"])
    count = 2_000
    with pytest.raises(InvalidInput, match=f"value {count + 1} "):
        read(VALUES_TYPE, [encode_values([bytes(1_000)] * count), b"\x09"])


def test_a_part_has_few_records() -> None:
    reader = PartReader(form(LINES_TYPE), LONGEST)
    reader.feed(b"\n" * PART_BYTES)
    assert [len(batch.values) for batch in reader.take().batches] == [65_536] * 16


def test_the_records_of_a_part_take_room_beside_their_values() -> None:
    assert whole_part(form(VALUES_TYPE), bytes(4 * 1_000), LONGEST).record_room_bytes == 1_000 * 128
    assert whole_part(form(LINES_TYPE), b"\n" * PART_BYTES, LONGEST).record_room_bytes == 65_536 * 128


def test_lines_of_different_labels_are_no_append_that_is_all_or_none() -> None:
    same = b'{"value": "a", "tag": "x"}\n' * 10_000
    assert len(joined(batches_of(form(JSON_TYPE), same, LONGEST)).values) == 10_000
    with pytest.raises(InvalidOption):
        joined(batches_of(form(JSON_TYPE), same + b'{"value": "a", "tag": "y"}\n', LONGEST))


@pytest.mark.parametrize("kind", ["", "text/html", "application/json", "application/x-ndjson-2"])
def test_other_content_types_are_refused(kind: str) -> None:
    with pytest.raises(Refused) as refused:
        form_of(kind, {})
    assert refused.value.status == 415


@pytest.mark.parametrize("values", [[], [b""], [b"one"], [b"", b"two", b"\x00" * 1_000]])
def test_values_come_back(values: list[bytes]) -> None:
    assert decode_values(encode_values(values)) == values


def test_a_body_that_is_cut_anywhere_is_refused() -> None:
    body = encode_values([b"one", b"two"])
    whole = {0, 7, len(body)}
    for length in range(len(body)):
        if length not in whole:
            with pytest.raises(InvalidInput):
                decode_values(body[:length])


def test_a_length_beyond_the_body_allocates_nothing() -> None:
    with pytest.raises(InvalidInput, match="cut off"):
        decode_values(b"\xff\xff\xff\xffrest")


def test_lines_come_back() -> None:
    assert [*decode_lines(b"one\n\r\n\n")] == [b"one", b"\r", b""]
    assert [*decode_lines(b"")] == []


def test_a_line_without_a_line_feed_is_refused() -> None:
    with pytest.raises(InvalidInput, match="line 3 has no line feed"):
        decode_lines(b"one\n\nthr")


def test_a_body_has_a_bounded_number_of_values() -> None:
    assert decode_values(bytes(4 * 10), most=10) == [b""] * 10
    with pytest.raises(Refused, match="at most 10 records"):
        decode_values(bytes(4 * 10) + b"\xff\xff\xff\xff", most=10)
