"""A tenant's name is one path segment, and no tenant's prefix begins another one's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import InvalidArgument, InvalidName
from catalog.tenants.names import RESERVED, check_base, check_tenant, prefix_of

NAMES = ["a", "7", "acme", "tenant1", "tenant10", "a-b_c", "a" * 63]
HOSTILE = ["", ".", "..", "/", "a/b", "%2f", "a%2fb", "a\x00", "acme\n", "\nacme", "acme\r\n", "acme ", " acme", "Acme"]
HOSTILE += [
    "\u0430cme",
    "\uff41cme",
    "acme\u202e",
    "\u200facme",
    "acm\u00e9",
    "acme\u0301",
    "\u017f",
    "\u212a",
    "\u0130",
]
HOSTILE += ["\uff11", "_sys", "-a", "a-"]
HOSTILE += ["a_", "*", "a*", "a?", "${aws:PrincipalTag/tenant}", "a" * 64, "a" * 1024, "\ud800", "a\\b", "a:b", "a,b"]
TEXTS = st.text(max_size=80) | st.from_regex(r"[a-z0-9_-]{0,70}", fullmatch=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_taken_as_it_is(name: str) -> None:
    assert check_tenant(name) == name
    assert prefix_of(name) == f"{name}/"
    assert prefix_of(name, "prod/eu/") == prefix_of(name, "prod/eu") == f"prod/eu/{name}/"


@pytest.mark.parametrize("name", [*HOSTILE, *sorted(RESERVED)])
def test_any_other_text_is_refused_with_a_hint(name: str) -> None:
    with pytest.raises(InvalidName) as caught:
        prefix_of(name)
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("base", [*(each for each in HOSTILE if each not in {"", "a_", "Acme", "a-", "a/b", "_sys"})])
def test_a_base_is_the_beginning_of_a_key_and_nothing_else(base: str) -> None:
    if base in {"a" * 64}:
        assert check_base(base) == f"{base}/"
        return
    with pytest.raises(InvalidArgument):
        prefix_of("acme", base)


@given(TEXTS, TEXTS)
def test_no_prefix_begins_another(one: str, other: str) -> None:
    try:
        prefixes = {prefix_of(one), prefix_of(other)}
    except InvalidName:
        return
    assert len(prefixes) == len({one, other})
    for first in prefixes:
        assert first.count("/") == 1
        assert [each for each in prefixes if each.startswith(first)] == [first]
