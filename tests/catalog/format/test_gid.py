"""GIDs: test vectors, and texts and bytes that are no GID."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import InvalidKey
from catalog.format.ids import Gid, Sid, Vid

VECTORS = [
    (Vid, "80000000000000800000000000000000", "5rLWQQkJdm-2dVseX433Zwhy"),
    (Sid, "c0ffffffffffffffffffffffffffffff", "8KCjybSsc2-4FzkJ37568tQv"),
]
ids = st.builds(
    lambda kind, ms, tail: kind(bytes([kind.TYPE]) + ms.to_bytes(6, "big") + bytes([tail[0] | 0x80]) + tail[1:]),
    st.sampled_from([Vid, Sid]),
    st.integers(0, 2**48 - 1),
    st.binary(min_size=9, max_size=9),
)


@pytest.mark.parametrize(("kind", "raw", "text"), VECTORS)
def test_vectors_hold(kind: type[Gid], raw: str, text: str) -> None:
    assert str(kind(bytes.fromhex(raw))) == text
    assert kind.parse(text).raw.hex() == raw


@given(ids)
def test_text_has_24_characters_and_reads_back(gid: Gid) -> None:
    text = str(gid)
    assert len(text) == 24
    assert text[0] == {Vid: "5", Sid: "8"}[type(gid)]
    assert type(gid).parse(text) == gid


@given(st.lists(ids.filter(lambda gid: isinstance(gid, Vid)), min_size=2, max_size=5))
def test_text_sorts_as_bytes_do_and_so_by_time(gids: list[Gid]) -> None:
    assert sorted(gids, key=str) == sorted(gids, key=lambda gid: gid.raw)


def test_new_ids_carry_their_time_and_differ() -> None:
    made = {Vid.new(1_763_111_523_000) for _ in range(100)}
    assert len(made) == 100
    assert {gid.created_ms for gid in made} == {1_763_111_523_000}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "5rLWQQkJdm",
        "5rLWQQkJdm-2dVseX433Zwh",
        "5rLWQQkJdm_2dVseX433Zwhy",
        "5rLWQQkJdm-2dVseX433Zwh0",
        "8KCjybSsc2-4FzkJ37568tQv",
        "zzzzzzzzzz-zzzzzzzzzzzzz",
        "5rLWQQkJdm-1111111111111",
        "5rLWQQkJdm-2dVseX433Zwhy\n",
    ],
)
def test_what_is_no_vid_is_refused(text: str) -> None:
    with pytest.raises(InvalidKey):
        Vid.parse(text)


@pytest.mark.parametrize(
    "raw", [b"", bytes(16), bytes([0xC0]) + bytes(6) + b"\x80" + bytes(8), bytes([0x80]) + bytes(15)]
)
def test_bytes_that_are_no_vid_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidKey):
        Vid(raw)
