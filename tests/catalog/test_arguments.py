"""Every public call of the catalog refuses an argument of the wrong type or range by name, before it does anything.

Checks come first. So a call with one wrong argument, and without its other arguments, is refused for the wrong value.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import catalog
from catalog import Branches, LocalCatalog, MemoryStore, Volumes
from catalog.errors import InvalidArgument, Misuse
from catalog.refs import state_names
from tests.arguments import WRONG, calls_of, contents

#: Ports. The catalog calls them with its own keys and bodies. A wrong key raises `InvalidKey` (catalog.format.keys).
PORTS = (catalog.LocalStore, catalog.MemoryStore)
#: Values that the catalog makes, and their parts.
VALUES = (
    catalog.Attempt,
    catalog.Branch,
    catalog.Bounds,
    catalog.Commit,
    catalog.Control,
    catalog.Fork,
    catalog.Handle,
    catalog.PastCommit,
    catalog.Sid,
    catalog.Snapshot,
    catalog.Vid,
)
#: Maps the name of a parameter to the kind of its values.
KINDS = {
    "back": "whole",
    "below_lsn": "u64",
    "body": "bytes",
    "boundary": "u64",
    "branch": "text",
    "branches": "instances",
    "changes": "instances",
    "commit": "instance",
    "commits": "instances",
    "control": "instance",
    "deleted": "bool",
    "first_lsn": "u64",
    "forward": "instance",
    "handle": "instance",
    "head_hash": "bytes",
    "attempt": "instance",
    "history": "instance",
    "is_passed": "callable",
    "key": "text",
    "last_lsn": "u64",
    "last_seq_at": "callable",
    "lsn": "u64",
    "message": "text",
    "name": "text",
    "new": "text",
    "keep": "text",
    "now_ms": "whole",
    "parent": "instance",
    "policy": "instance",
    "prefix": "text",
    "pruned": "bytes",
    "seq": "whole",
    "sid": "instance",
    "state": "text",
    "target": "instance",
    "text": "text",
    "topic": "text",
    "until_ms": "whole",
    "value": "instance",
    "version": "whole",
    "vid": "instance",
    "vids": "instances",
    "volumes": "instance",
    "waiter": "callable",
}
#: Parameters that need more than a kind. The test of wrong arguments skips them.
OTHERS = {"bodies", "done", "truncated", "enough", "former"}


def _call(name: str) -> Any:
    found: Any = catalog
    for part in name.split("."):
        found = getattr(found, part)
    return found


CALLS = calls_of(catalog, values=(*PORTS, *VALUES))
TAGS = {"create", "get", "delete", "list"}


def test_every_argument_has_a_kind() -> None:
    assert {each for arguments in CALLS.values() for each in arguments} <= {*KINDS, *OTHERS}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_refused_by_its_name(name: str) -> None:
    call = _call(name)
    selves = [object()] if "." in name else []
    for argument in CALLS[name] & set(KINDS):
        for value in WRONG[KINDS[argument]]:
            with pytest.raises(Misuse, match=argument) as caught:
                call(*selves, **{argument: value})
            assert caught.value.exit_code == 2


@pytest.mark.parametrize("call", sorted(TAGS))
def test_so_it_is_for_tags(call: str) -> None:
    arguments = set(inspect.signature(getattr(state_names.Tags, call)).parameters) - {"self", "point"}
    for argument in arguments:
        for value in WRONG[KINDS[argument]]:
            with pytest.raises(InvalidArgument, match=argument):
                getattr(state_names.Tags, call)(object(), **{argument: value})


def test_nothing_changes_in_store_or_local_catalog(tmp_path: Path) -> None:
    store = MemoryStore()
    with_local = LocalCatalog(tmp_path / "catalog.db")
    volumes = Volumes(store, with_local)
    before, keys = contents(tmp_path), list(store.list(""))
    for value in (7, b"x", None, 1.5):
        with pytest.raises(InvalidArgument, match="topic"):
            Branches(volumes).create(value, "b", None, now_ms=1)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="vid"):
            volumes.publish(value, 1, b"")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="name"):
            with_local.delete_handle(value)  # type: ignore[arg-type]
    assert (contents(tmp_path), list(store.list(""))) == (before, keys)
    with_local.close()
