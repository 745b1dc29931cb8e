from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.format.checksum import Checksum, ChecksumKind, SizedChecksum, joined

CHECK = {  # the checksums of b"123456789", from the catalogue of CRCs
    ChecksumKind.CRC32C: 0xE3069283,
    ChecksumKind.CRC32: 0xCBF43926,
}


@pytest.mark.parametrize("kind", ChecksumKind)
def test_the_check_string_has_the_value_that_is_published(kind: ChecksumKind) -> None:
    assert Checksum.of(kind, b"123456789").value == CHECK[kind]


@given(st.sampled_from(ChecksumKind), st.lists(st.binary(max_size=300), min_size=1, max_size=8))
def test_what_parts_join_to_is_the_checksum_of_the_whole(kind: ChecksumKind, parts: list[bytes]) -> None:
    whole = b"".join(parts)
    found = joined(SizedChecksum(Checksum.of(kind, part), len(part)) for part in parts)
    assert found == SizedChecksum(Checksum.of(kind, whole), len(whole))
    value = 0
    for part in parts:
        value = Checksum.of(kind, part, value).value
    assert value == found.checksum.value


def test_kinds_do_not_join() -> None:
    parts = [SizedChecksum(Checksum.of(kind, b"x"), 1) for kind in (ChecksumKind.CRC32, ChecksumKind.CRC32C)]
    with pytest.raises(ValueError, match="does not join"):
        joined(parts)


@given(st.sampled_from(ChecksumKind), st.binary(max_size=40))
def test_the_text_is_read_back(kind: ChecksumKind, body: bytes) -> None:
    checksum = Checksum.of(kind, body)
    assert Checksum.parse(kind, str(checksum)) == checksum


@pytest.mark.parametrize("text", ["", "AAAAAA==-3", "AAAAAA", "AAAAAAAAAA==", "\u00e4"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        Checksum.parse(ChecksumKind.CRC32, text)
