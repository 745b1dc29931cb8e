"""Objects that work only in the process that made them.

A fork copies the memory of a process. The child has the parent's open files, and none of its other threads. So a lock
in the child may be held by a thread that does not exist there. A write by the child overwrites what the parent writes.

    1  The parent opens a log. Each object of the log with a file, a lock or a thread is an `Owned`.
    2  A thread of the parent forks. Other threads may hold locks, or be in the middle of a write.
    3  Before `fork` returns in the child, each `Owned` closes its descriptors (`_leave_to_parent`). Then it loses its
       attributes, and its class becomes one that refuses to look them up. The parent notices nothing.
    4  The child calls a method. The method finds no attribute, and raises `OpenedByParent` before it takes any lock.

OWN-1  In the child, `close` does nothing, and every other call raises. The child waits for no lock or thread of the
       parent.
OWN-2  The parent pays nothing. Only the class that an object gets in the child intercepts missing attributes.
OWN-3  The child closes the descriptor of a lock file and never unlocks it. A flock belongs to the open file, which the
       parent shares. So the parent keeps the lock, and a child that outlives the parent does not hold it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Self
from weakref import WeakSet

from seglog.base.errors import OpenedByParent

_KEPT = frozenset({"__weakref__", "__dict__", "__slots__"})


class Owned:
    """A base class of objects that belong to one process. The `close` of a subclass returns at once if the object
    `is_foreign`.
    """

    __slots__ = ("__weakref__",)

    def __new__(cls, *_args: Any, **_named: Any) -> Self:
        self = super().__new__(cls)
        _owned.add(self)
        return self

    def _leave_to_parent(self) -> None:
        """Close descriptors that no other object closes. The child calls this, perhaps on a partly built object."""


def is_foreign(owned: Owned) -> bool:
    """Return True in a forked child, for an object that the parent made."""
    return type(owned) in _foreign_kinds.values()


def check_process(owned: Owned) -> None:
    """Raise `OpenedByParent` in a forked child. Call this before waiting for a thread."""
    if is_foreign(owned):
        raise OpenedByParent(type(owned).opened_by)  # type: ignore[attr-defined]


_owned: WeakSet[Owned] = WeakSet()
_foreign_kinds: dict[tuple[type[Owned], int], type[Owned]] = {}
_process = os.getpid()


def _in_child() -> None:
    global _process
    _process, parent = os.getpid(), _process
    inherited = [owned for owned in list(_owned) if not is_foreign(owned)]
    for owned in inherited:
        with suppress(Exception):
            owned._leave_to_parent()  # noqa: SLF001 - the hook of this module
    for owned in inherited:
        _empty(owned)
        owned.__class__ = _foreign(type(owned), parent)


def _empty(owned: Owned) -> None:
    """Delete the attributes of `owned`. This also closes the files that no other object refers to."""
    getattr(owned, "__dict__", {}).clear()
    for kind in type(owned).__mro__:
        for name in kind.__dict__.get("__slots__", ()):
            if name not in _KEPT:
                with suppress(AttributeError):
                    delattr(owned, name)


def _foreign(kind: type[Owned], parent: int) -> type[Owned]:
    """Return the class that objects of `kind` get in a forked child. `parent` is the process that made them.

    Python lets an object change to a subclass of the same layout.
    """
    found = _foreign_kinds.get((kind, parent))
    if found is None:
        own = {"__slots__": (), "__getattr__": _refuse, "opened_by": parent}
        found = _foreign_kinds[kind, parent] = type(kind.__name__, (kind,), own)
    return found


def _refuse(self: Owned, _name: str) -> Any:
    raise OpenedByParent(type(self).opened_by)  # type: ignore[attr-defined]


os.register_at_fork(after_in_child=_in_child)
