"""The types in the signature of a command, and of the fields of a result.

The modules of the commands import some of these types for type checking only. Their import takes longer than all the
rest of a command that the daemon serves. So they are imported when a hint names them.
"""

from __future__ import annotations

import functools
import importlib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["hints_of", "result_hint", "result_types"]

_HOMES = {"Archive": "offload.archive", "Directory": "offload.operations.directory", "Log": "seglog.log"}


class _Late(dict[str, Any]):
    """The types that a module imports for type checking only, each imported at its first use."""

    def __missing__(self, name: str) -> Any:
        found = self[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return found


_LATE = _Late()


@functools.cache
def hints_of(subject: Any) -> Mapping[str, Any]:
    """Return the types of a function's parameters and result, or of a class's fields, by name."""
    return typing.get_type_hints(subject, localns=_LATE)


def result_hint(function: Callable[..., Any]) -> Any:
    """Return the type of a function's result. The types of its parameters are not imported."""
    only = types.SimpleNamespace(__annotations__={"return": function.__annotations__["return"]})
    return typing.get_type_hints(only, function.__globals__, _LATE)["return"]


def result_types(function: Callable[..., Any]) -> Mapping[str, type]:
    """Return the classes of a function's results by their names. A function returns one, or an iterator of them."""
    hint = result_hint(function)
    if typing.get_origin(hint) is Iterator:
        [hint] = typing.get_args(hint)
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return {kind.__name__: kind for kind in kinds}
