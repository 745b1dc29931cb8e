"""Test the token file and the rights that its lines give."""

from __future__ import annotations

import hashlib

import pytest

from offload.errors import Misuse, NotAllowed, Refused
from offload.token_rights import EVERYTHING, InvalidTokens, Rights, Role, new_token, parse_tokens, token_line


def line(name: str, role: Role, topics: str, token: str) -> str:
    return token_line(name, role, topics, token) + "\n"


def rights_in(text: str, token: str) -> Rights:
    return parse_tokens(text.encode(), "tokens").rights_of(b"Bearer " + token.encode())


FILE = (
    "# of the shop\n\n"
    + line("shipper", Role.APPEND, "app-*,web", "one")
    + line("shipper", Role.READ, "*", "one")
    + line("console", Role.READ, "app-[ab]", "two")
    + "  "
    + line("scraper", Role.METRICS, "*", "three")
)


def may(rights: Rights, role: Role, topic: str | None = None) -> bool:
    try:
        rights.check(role, topic)
    except NotAllowed:
        return False
    return True


def test_a_token_has_the_rights_of_all_its_lines() -> None:
    shipper = rights_in(FILE, "one")
    assert shipper.name == "shipper"
    assert [may(shipper, Role.APPEND, topic) for topic in ("app-x", "app-x@try", "web", "web2", "orders")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert may(shipper, Role.READ, "orders@main")
    assert not may(shipper, Role.ADMIN)
    shipper.check_all_topics(Role.READ)
    with pytest.raises(NotAllowed, match="the token shipper lacks the role append on all topics"):
        shipper.check_all_topics(Role.APPEND)


def test_each_role_includes_the_ones_before_it_and_a_list_shows_the_topics_that_may_be_read() -> None:
    console, scraper = rights_in(FILE, "two"), rights_in(FILE, "three")
    assert [may(console, role) for role in Role] == [True, True, False, False]
    assert [may(scraper, role, "app-a") for role in Role] == [True, False, False, False]
    assert [console.shows(topic) for topic in ("app-a", "app-b@x", "app-c", "")] == [True, True, False, False]
    assert not scraper.shows("app-a")
    assert [may(EVERYTHING, role, "x") for role in Role] == [True] * 4


def test_a_refusal_names_the_role_and_the_topic_and_is_the_same_for_each_name() -> None:
    console = rights_in(FILE, "two")
    with pytest.raises(NotAllowed) as refused:
        console.check(Role.ADMIN, "orders")
    assert (refused.value.status, refused.value.role, str(refused.value)) == (
        403,
        "admin",
        "the token console lacks the role admin on topic orders",
    )


@pytest.mark.parametrize(
    "header", [b"", b"one", b"Bearer", b"Bearer ", b"Bearer four", b"Basic one", b"Bearer one two", b"Bearerone"]
)
def test_a_wrong_header_is_401(header: bytes) -> None:
    with pytest.raises(Refused) as refused:
        parse_tokens(FILE.encode(), "tokens").rights_of(header)
    assert refused.value.status == 401


def test_the_scheme_has_no_case_and_a_line_without_colon_is_the_token_itself() -> None:
    tokens = parse_tokens(FILE.encode(), "tokens")
    assert {tokens.rights_of(b"%s  one " % scheme).name for scheme in (b"bearer", b"BEARER")} == {"shipper"}
    bare = parse_tokens(b"# mine\n correct-horse-battery \n", "tokens").rights_of(b"Bearer correct-horse-battery")
    assert (bare.name, bare.grants) == ("token", EVERYTHING.grants)


HASH = hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize(
    ("text", "number", "reason"),
    [
        ("", 1, "no token"),
        ("# nothing\n", 1, "no token"),
        ("short\n", 1, "fewer than 16"),
        (f"a:read:*:{HASH}\nb:read:*\n", 2, "name:role:topics:sha256"),
        (f"a:read:*:{HASH}\ncorrect-horse-battery\n", 2, "name:role:topics:sha256"),
        (f"a:read:*:{HASH}:x:y\n", 1, "name:role:topics:sha256"),
        (f"a:read:*:{HASH}:\n", 1, "'' is no name of a tenant"),
        (f"a:read:*:{HASH}:Acme\n", 1, "'Acme' is no name of a tenant"),
        (f"a:read:*:{HASH}:acme/x\n", 1, "'acme/x' is no name of a tenant"),
        (f"a:read:*:{HASH}:acme\na:admin:*:{HASH}\n", 2, "the lines of a name several tenants"),
        (f"a:read:*:{HASH}:acme\na:read:*:{HASH}:other\n", 2, "the lines of a name several tenants"),
        (f":read:*:{HASH}\n", 1, "no name"),
        (f"a b:read:*:{HASH}\n", 1, "no name"),
        (f"{'a' * 65}:read:*:{HASH}\n", 1, "no name"),
        (f"\n#\na:write:*:{HASH}\n", 3, "'write' is none of metrics, read, append, admin"),
        (f"a:read::{HASH}\n", 1, "'' is no glob"),
        (f"a:read:x,/y:{HASH}\n", 1, "'/y' is no glob"),
        (f"a:read:*:{HASH[1:]}\n", 1, "64 hex digits"),
        ("a:read:*:correct-horse-battery\n", 1, "64 hex digits"),
        (f"a:read:*:{HASH}\nb:read:*:{HASH.upper()}\n", 2, "a and b have the same token"),
    ],
)
def test_a_wrong_line_is_named_by_its_number(text: str, number: int, reason: str) -> None:
    with pytest.raises(InvalidTokens, match=reason) as wrong:
        parse_tokens(text.encode(), "tokens")
    assert wrong.value.line == number
    assert "correct-horse" not in str(wrong.value)


def test_bytes_that_are_no_text_are_a_wrong_line() -> None:
    with pytest.raises(InvalidTokens, match="no name"):
        parse_tokens(b"\xff:read:*:" + HASH.encode(), "tokens")


def test_a_new_line_is_read_back_and_refuses_what_the_file_refuses() -> None:
    token = new_token()
    assert len(token) >= 40
    assert token != new_token()
    rights = rights_in(token_line("ci", Role.APPEND, "app-*", token), token)
    assert (rights.name, rights.shows("app-1"), rights.shows("x")) == ("ci", True, False)
    for name, topics in (("a:b", "*"), ("", "*"), ("a", ""), ("a", "x:y")):
        with pytest.raises(Misuse):
            token_line(name, Role.READ, topics, token)


def test_a_daemon_of_one_tenant_knows_its_own_tokens_and_those_that_are_not_bound() -> None:
    text = "".join(
        token_line(name, Role.READ, "*", f"of-{name}", tenant) + "\n"
        for name, tenant in (("a", "acme"), ("b", "other"), ("c", ""))
    )
    all_of_them = parse_tokens(text.encode(), "tokens")
    assert [all_of_them.rights_of(b"Bearer of-%s" % name).tenant for name in (b"a", b"b", b"c")] == [
        "acme", "other", "",
    ]  # fmt: skip
    for tenant, known in (("acme", "ac"), ("other", "bc"), ("", "c"), ("acm", "c")):
        tokens = all_of_them.for_tenant(tenant)
        for name in "abc":
            if name in known:
                assert tokens.rights_of(b"Bearer of-%s" % name.encode()).name == name
            else:
                with pytest.raises(Refused, match="missing or wrong") as refused:
                    tokens.rights_of(b"Bearer of-%s" % name.encode())
                assert refused.value.status == 401
