"""Changes of an object, for the tests of `change`."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["line", "no_pause"]


def no_pause(_: float) -> None:
    """Do not wait between tries."""


def line(text: bytes) -> Callable[[bytes | None], bytes | None]:
    """Return a change that adds a line unless the line is there."""

    def make(body: bytes | None) -> bytes | None:
        lines = (body or b"").splitlines()
        return None if text in lines else b"\n".join([*lines, text])

    return make
