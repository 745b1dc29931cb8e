"""The operations by their paths, such as `topic/create`.

`make docs` writes the list of them (offload.operations.listing), with the module of each. That module is imported when
the operation is first asked for, so that a command imports no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from offload.operations.command import Command
from offload.operations.listing import COMMANDS as LISTED
from offload.operations.results import ERROR, schemas_of

__all__ = ["COMMANDS", "command_of", "schemas"]


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


def schemas() -> dict[str, Any]:
    """Return the schema of each kind of result, also of those that the command line alone shows."""
    from offload.operations import append, bisect, doctor, export, follow, init, inspect, tenant, token, verify

    served = [command.function for command in COMMANDS.values()]
    others: list[Callable[..., Any]] = [
        init.init,
        append.append,
        bisect.bisect,
        export.export,
        export.verify,
        follow.follow,
        inspect.inspect,
        inspect.entries,
        verify.verify,
        verify.verify_remote,
        verify.verify_part,
        doctor.doctor,
        doctor.doctor_directory,
        tenant.delete,
        tenant.preview,
        token.new,
        tenant.listed,
        tenant.policy,
        tenant.policy_of_bucket,
        tenant.check,
        tenant.credentials,
    ]
    found = {"error": ERROR}
    for function in (*served, *others):
        found |= schemas_of(function)
    return dict(sorted(found.items()))
