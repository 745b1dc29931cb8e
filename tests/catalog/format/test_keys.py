"""The key builder: it makes the tree of its docstring, and refuses names that could break out of the tree."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog.errors import InvalidKey, InvalidName
from catalog.format import keys
from tests.catalog.samples import sid, vid


def test_keys_are_as_the_tree_shows_them() -> None:
    volume, name = vid(1), sid(1)
    made = {
        "refs/orders/main": keys.ref_key("orders", "main"),
        f"{volume}/control": keys.control_key(volume),
        f"{volume}/forks/{vid(2)}": keys.fork_key(volume, vid(2)),
        f"{volume}/log/FFFFFFFFFFFFFFFE": keys.commit_key(volume, 1),
        f"{volume}/segments/{name}": keys.data_key(volume, name),
        f"{volume}/segments/{name}.index": keys.index_key(volume, name),
        f"doctor/{name}/list/t": f"{keys.doctor_prefix(name)}list/t",
    }
    for text, key in made.items():
        assert key == text
        assert keys.check_key(key) == key
    assert keys.check_key(text := "day=2026-11-22/topic=orders@fix/a.parquet") == text


def test_keys_read_back() -> None:
    assert keys.lsn_of(keys.commit_key(vid(1), 931)) == 931
    assert keys.topic_of(keys.ref_key("orders", "half")) == "orders"
    assert keys.branch_of(keys.ref_key("orders", "half")) == "half"
    assert keys.named_by(keys.ref_key("orders", "half")) == ("orders", "half")
    assert keys.named_by(keys.tag_key("orders", "v1")) == ("orders", "v1")
    assert keys.volume_in_pin(keys.pin_key(vid(1), "job")) == (vid(1), "job")
    assert keys.number_of(keys.oplog_key(931)) == 931
    assert keys.plan_of(keys.plan_key(931)) == 931
    assert keys.plan_of(keys.page_key(931, 7)) == 931


_ONE = "FFFFFFFFFFFFFFFE"
_PARSERS = {
    keys.named_by: ("refs/{}", "tags/{}"),
    keys.volume_in_pin: ("pins/{}",),
    keys.number_of: ("oplog/{}",),
    keys.plan_of: ("gc/{}",),
    keys.lsn_of: (f"{vid(1)}/log/{{}}",),
}


@pytest.mark.parametrize("parse", _PARSERS, ids=lambda parse: parse.__name__)
@pytest.mark.parametrize(
    "name",
    [
        *("", "t", "t/", "t/b/", "t/b/c", "t/.b", "-t/b", "t b/c", "FF", "F" * 16, f"{_ONE}\n", f"{_ONE}/"),
        *(f"{_ONE}/plan/", f"{_ONE}/.x", f"{vid(1)}", f"{vid(1)}/", f"{vid(1)}/.x", f"{vid(1)}/job/x"),
    ],
)
def test_what_no_key_is_like_is_taken_by_no_parser(parse: Callable[[str], object], name: str) -> None:
    for pattern in _PARSERS[parse]:
        assert parse(pattern.format(name)) is None
    assert parse(name) is None
    assert parse(f"5/{name}") is None


@pytest.mark.parametrize("parse", _PARSERS, ids=lambda parse: parse.__name__)
def test_no_parser_takes_another_kind_of_key(parse: Callable[[str], object]) -> None:
    known = {
        keys.ref_key("t", "b"): keys.named_by,
        keys.tag_key("t", "v1"): keys.named_by,
        keys.pin_key(vid(1), "job"): keys.volume_in_pin,
        keys.oplog_key(1): keys.number_of,
        keys.plan_key(1): keys.plan_of,
        keys.commit_key(vid(1), 1): keys.lsn_of,
    }
    assert [key for key in known if parse(key) is not None] == [key for key, its in known.items() if its is parse]


def test_keys_begin_with_their_prefixes() -> None:
    assert keys.ref_key("orders", "half").startswith(keys.refs_prefix("orders"))
    assert keys.refs_prefix("orders").startswith(keys.refs_prefix())
    assert keys.commit_key(vid(1), 1).startswith(keys.commits_prefix(vid(1)))
    assert keys.data_key(vid(1), sid(1)).startswith(keys.segments_prefix(vid(1)))


@pytest.mark.parametrize("name", ["", ".", "..", "-x", ".x", "a/b", "a b", "a\n", "é", "a" * 129, "a\x00", "a@b"])
def test_a_name_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        keys.ref_key(name, "main")
    with pytest.raises(InvalidName):
        keys.ref_key("orders", name)
    with pytest.raises(InvalidName):
        keys.refs_prefix(name)


@pytest.mark.parametrize("name", ["a", "_", "0", "A.b_c-d", "a" * 128, "a..b"])
def test_a_name_that_is_one_is_taken(name: str) -> None:
    assert keys.ref_key(name, name) == f"refs/{name}/{name}"


@pytest.mark.parametrize("prefix", ["", "refs/", "refs", "refs/orders/", "vol/log/FF"])
def test_the_beginning_of_a_key_is_a_prefix(prefix: str) -> None:
    assert keys.check_prefix(prefix) == prefix


@pytest.mark.parametrize("prefix", ["/", "a//", "../", ".a", "a/.b", "a\n"])
def test_what_no_key_begins_with_is_no_prefix(prefix: str) -> None:
    with pytest.raises(InvalidKey):
        keys.check_prefix(prefix)
