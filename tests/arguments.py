"""Arguments of the wrong type or range, for every public call: the values, the table, and the calls that exist.

A package's test has a table of rows, one for each public call that takes arguments. `calls_of` finds these calls in the
package, so that a call without a row fails the test. `wrong_values` are tried for one argument at a time. `refused`
reports the values that the call does not refuse properly.
"""

from __future__ import annotations

import datetime as dt
import enum
import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.trees import tree

__all__ = ["Row", "calls_of", "contents", "refused", "signature_of", "wrong_values"]

NAIVE = dt.datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - a naive one is what is tried

_WHOLE = ("7", b"7", 1.5, 7.0, math.nan, math.inf, True, -1, 2**63, 2**64, [7], NAIVE, object())

#: Maps the kind of an argument to values that it never takes.
WRONG: dict[str, tuple[object, ...]] = {
    "whole": _WHOLE,
    "positive": (0, *_WHOLE),
    "several": (0, 1, *_WHOLE),
    "version": (b"7", 1.5, 7.0, math.nan, True, -1, 2**63, ["7"], "\ud800", NAIVE, object()),
    "u64": ("7", b"7", 1.5, 7.0, math.nan, math.inf, True, -1, 2**64, [7], NAIVE, object()),
    "number": ("7", b"7", math.nan, math.inf, -math.inf, -1, -0.5, True, [7], NAIVE, object()),
    "bool": (1, 0, 2, "yes", "", b"", 1.0, [True], object()),
    "text": (7, b"text", True, 1.5, ["text"], "\ud800", NAIVE, Path("text"), object()),
    "name": (7, b"name", True, 1.5, ["name"], "\ud800", "", "a b", "a/b", "../a", NAIVE, object()),
    "bytes": ("text", 7, True, 1.5, ["x"], NAIVE, object()),
    "values": (b"x", "x", bytearray(b"x"), 7, True, {b"x": b"x"}, {b"x"}, ["x"], [None], [7], [b"x", "y"], object()),
    "chunks": (b"x", "x", bytearray(b"x"), 7, True, {b"x": b"x"}, {b"x"}, object()),
    "path": (7, b"/x", True, 1.5, ["x"], "", "a\0b", NAIVE, object()),
    "directory": (7, b"/x", True, 1.5, ["x"], "a\0b", NAIVE, Path("x"), object()),
    "wholes": (7, "7", b"7", ["7"], [1.5], [True], [-1], [2**64], object()),
    "texts": (7, "7", b"7", [7], [b"x"], [None], object()),
    "instances": (7, "7", b"7", [7], ["x"], [None], object()),
    "position": (7, "abc", b"abc", (1, 2), (1, 2, 3, 4), (1, 2, "3"), (1, 2.0, 3), (1, True, 3), [1, 2, 3], object()),
    "callable": (7, "x", b"x", True, [], object()),
    "mapping": (7, "x", b"x", True, 1.5, [], {1: "x"}, {"x": 1}, {"x": None}, NAIVE, object()),
    "instance": (7, "x", b"x", True, 1.5, [], {}, NAIVE, object()),
}


@dataclass(frozen=True)
class Row:
    """A row of the table.

    `run` makes the call in a world, with keyword arguments. `takes` has the kinds of its arguments. An argument in
    `optional` accepts None. `fit` has the values of the other arguments while one is wrong.
    """

    run: Callable[..., object]
    takes: dict[str, str]
    fit: dict[str, object] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()


def wrong_values(row: Row, argument: str) -> Iterator[object]:
    yield from WRONG[row.takes[argument]]
    if argument not in row.optional:
        yield None


def refused(world: Any, name: str, row: Row, errors: type[Exception] | tuple[type[Exception], ...]) -> list[str]:
    """Return the wrong refusals of one call.

    A refusal is wrong if the call took the value, raised another error, or did not name the argument.
    """
    found = []
    for argument in row.takes:
        for value in wrong_values(row, argument):
            called = f"{name}({argument}={value!r})"
            try:
                row.run(world, **{**row.fit, argument: value})
            except errors as error:
                if argument not in str(error):
                    found.append(f"{called} does not name the argument: {error}")
            except BaseException as error:
                found.append(f"{called} raised {error!r}")
            else:
                found.append(f"{called} was taken")
    return found


def calls_of(module: ModuleType | SimpleNamespace, *, values: Iterable[type] = ()) -> dict[str, frozenset[str]]:
    """Return the public calls of a module that take arguments, with the arguments' names. Leave out `values`."""
    found: dict[str, frozenset[str]] = {}
    for name in module.__all__:
        public = getattr(module, name)
        if inspect.isfunction(public):
            found[name] = _arguments(public)
        elif inspect.isclass(public) and _is_of_calls(public) and public not in set(values):
            found |= dict(_methods(name, public))
    return {name: arguments for name, arguments in found.items() if arguments}


def _is_of_calls(kind: type) -> bool:
    is_port = getattr(kind, "_is_protocol", False)
    return not (issubclass(kind, (BaseException, enum.Enum)) or is_port)


def _methods(name: str, kind: type) -> Iterator[tuple[str, frozenset[str]]]:
    home = kind.__module__.split(".")[0]
    for attribute in dir(kind):
        found = inspect.getattr_static(kind, attribute)
        found = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
        if isinstance(found, property) and found.fset is not None:
            yield f"{name}.{attribute}", _arguments(found.fset)
        elif inspect.isfunction(found) and not attribute.startswith("_") and found.__module__.startswith(home):
            yield f"{name}.{attribute}", _arguments(found)


def _arguments(call: Callable[..., object]) -> frozenset[str]:
    parameters = list(signature_of(call).parameters)
    return frozenset(parameters[1:] if parameters[:1] in (["self"], ["cls"]) else parameters)


def signature_of(call: Callable[..., object]) -> inspect.Signature:
    """Return the signature, with the names of `**x: Unpack[Arguments]` as arguments of their own."""
    plain = inspect.unwrap(call)
    signature, parameters = inspect.signature(call), []
    for each in signature.parameters.values():
        if not str(each.annotation).startswith("Unpack["):
            parameters.append(each)
            continue
        arguments = plain.__globals__[str(each.annotation)[len("Unpack[") : -1]]
        for name, hint in arguments.__annotations__.items():
            text = getattr(hint, "__forward_arg__", hint)
            parameters.append(inspect.Parameter(name, each.KEYWORD_ONLY, default=..., annotation=text))
    return signature.replace(parameters=parameters)


def contents(root: Path) -> dict[str, bytes]:
    """Return every file below `root` except SQLite's locks and the chunk cache, because a reader changes these."""
    return {
        path: content
        for path, content in tree(root).items()
        if "seglog-chunks" not in Path(path).parts and not path.endswith("-shm")
    }
