"""The operations by their paths, such as `topic/create`.

`make docs` writes the list of them (offload.operations.listing), with the module of each. That module is imported when
the operation is first asked for, so that a command imports no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from offload.operations.command import Command
from offload.operations.listing import COMMANDS as LISTED

__all__ = ["COMMANDS", "command_of"]


def command_of(path: str) -> Command:
    """Return an operation, also one of the command line alone. Raises `KeyError`."""
    module = import_module(LISTED[path].home)
    return next(each for each in vars(module).values() if isinstance(each, Command) and each.path == path)


class _Served(Mapping[str, Command]):
    """The operations on an open data directory. The daemon serves each of them."""

    def __getitem__(self, path: str) -> Command:
        if not LISTED[path].home.startswith("offload.operations."):
            raise KeyError(path)
        return command_of(path)

    def __iter__(self) -> Iterator[str]:
        return (path for path, each in LISTED.items() if each.home.startswith("offload.operations."))

    def __len__(self) -> int:
        return sum(1 for _ in self)


COMMANDS: Mapping[str, Command] = _Served()
