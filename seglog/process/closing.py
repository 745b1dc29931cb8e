"""The end of a `with` block that closes something: the error within the block wins over an error of the close.

The error within tells what the block did. An append, for instance, says how much of its input is in. If the close fails
after it, often for the same reason, its error would take the place of that answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

__all__ = ["closed_after", "closing_after"]


class _Closable(Protocol):
    def close(self) -> object: ...


_Closed = TypeVar("_Closed", bound=_Closable)


@contextmanager
def closing_after(error: BaseException | None) -> Iterator[None]:
    """Close within this block. `error` ended the caller's own block, or is None.

    With an `error`, a failure of the close becomes a note of it. A generator that ends early has no reader of notes,
    so there the failure is raised.
    """
    try:
        yield
    except Exception as failure:
        if error is None or isinstance(error, GeneratorExit):
            raise
        error.add_note(f"the close after it failed too: {failure}")


@contextmanager
def closed_after(thing: _Closed) -> Iterator[_Closed]:
    """Close `thing` at the end, as `contextlib.closing` does, but let the error within the block win."""
    error: BaseException | None = None
    try:
        yield thing
    except BaseException as raised:
        error = raised
        raise
    finally:
        with closing_after(error):
            thing.close()
