"""The client for whom a thread changes the remote. Commits and the operations log name it before the machine.

The threads of a pool have no client. So `acting_for` covers the changes that its own thread makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["acting_for", "author"]

_CLIENT: ContextVar[str] = ContextVar("client", default="")


@contextmanager
def acting_for(client: str) -> Iterator[None]:
    """Let the changes within have `client` in their author's name. An empty name changes nothing."""
    token = _CLIENT.set(client)
    try:
        yield
    finally:
        _CLIENT.reset(token)


def author(machine: str) -> str:
    """Return the author of a change: `client@machine`, or the machine alone."""
    client = _CLIENT.get()
    return f"{client}@{machine}" if client else machine
