"""The one key builder: the tree of its docstring, and names that could break out of it."""

from __future__ import annotations

import pytest

from catalog import keys
from catalog.errors import InvalidKey, InvalidName
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


def test_keys_read_back() -> None:
    assert keys.lsn_of(keys.commit_key(vid(1), 931)) == 931
    assert keys.topic_of(keys.ref_key("orders", "half")) == "orders"
    assert keys.branch_of(keys.ref_key("orders", "half")) == "half"


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
