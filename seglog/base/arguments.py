"""Checks of the arguments of public calls against their annotations, before the call does anything.

    @checked
    def truncate(self, seq: int, *, position: tuple[int, int, int] | None = None) -> None: ...

    annotation              takes                                                 hands on
    int                     a whole number from 0 to 2^63 - 1                     an int
    Annotated[int, Within]  a whole number within these bounds                    an int
    float                   a number from 0 to 10^9, or Within; no NaN            the number
    bool                    True or False                                         the same
    str                     text that UTF-8 can hold, also of a subclass          a str
    bytes                   bytes, a bytearray, a memoryview                      bytes
    str | os.PathLike[str]  a path: not empty, no NUL                             the same
    Literal                 one of these values                                   the same
    tuple, Mapping          that many parts, or pairs, each of which fits         a tuple, a dict
    Sequence, Iterable      items, each of which fits; no text and no bytes       a tuple
    Callable                an object that can be called                          the same
    a Protocol              an object that has its names                          the same
    another class           an instance                                           the same
    X | Y                   a value that X or Y takes                             the value that X or Y hands on
    Unpack[TypedDict]       arguments with these names, each of which fits        the same

ARG-1  A bool is no number. Any other value with `__index__`, such as a numpy integer, is a whole number. The check
    hands it on as an int.
ARG-2  A value that does not fit raises `InvalidArgument`, which names the argument. A wrong number of arguments, or an
    unknown name, still raises Python's own `TypeError`.
ARG-3  A default is not checked.

A `SeglogError` leaves a checked call without the frames behind the call, and without the traceback of a client library
that it came from. It says by itself what happened, and 60 lines of other people's code hide that. `python -X dev`,
`seglog --debug` and the daemon show all of them. The library's exception stays on the error, as its `__context__`.
"""

from __future__ import annotations

import collections.abc
import operator
import os
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, Union, cast

from seglog.base.dataclasses import dataclass
from seglog.base.errors import InvalidArgument, SeglogError

#: SQLite, Java and Spark have signed numbers of 64 bits.
WHOLE_MAX: Final = 2**63 - 1
_NUMBER_MAX: Final = 1_000_000_000
_UNFIT: Final = object()
_shows_frames = sys.flags.dev_mode

_Call = TypeVar("_Call", bound=Callable[..., Any])
_Take: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds of a number, both inclusive.

    They equal no tuple, because `Annotated` may return an earlier annotation whose parts equal these: Python 3.11.2
    does.
    """

    least: float
    most: int


class Kind(NamedTuple):
    """The values that an argument takes. `wanted` says in words which values fit.

    `take` returns the value to hand on, or a mark that the given value does not fit.
    """

    wanted: str
    take: _Take


def checked(call: _Call) -> _Call:
    """Return the call with a check of its arguments before it. The check raises `InvalidArgument`."""
    order: tuple[str, ...] = ()
    is_open = "Unpack[" in str(call.__annotations__)  # Python lets any name through
    kinds: dict[str, Kind | None] | None = None

    @wraps(call)
    def with_checks(*given: Any, **named: Any) -> Any:
        nonlocal kinds, order
        if kinds is None:
            order, kinds = call.__code__.co_varnames[: call.__code__.co_argcount], _kinds_of(call)
        fitting = [taken(name, value, kinds.get(name)) for name, value in zip(order, given, strict=False)]
        for name in named:
            if is_open and name not in kinds:
                raise TypeError(f"{call.__name__}() got an unexpected keyword argument {name!r}")
            named[name] = taken(name, named[name], kinds.get(name))
        try:
            return call(*fitting, *given[len(order) :], **named)
        except SeglogError as error:
            if _shows_frames:
                raise
            cause = error.__cause__
            if cause is not None and not isinstance(cause, SeglogError):
                error.__context__, cause = cause, None
            raise error.with_traceback(None) from cause

    return cast("_Call", with_checks)


def show_frames(are_shown: bool) -> None:
    """Let the errors of this process keep all frames from now on, or only those of the caller."""
    global _shows_frames
    _shows_frames = are_shown


def taken(name: str, value: Any, kind: Kind | None) -> Any:
    """Return the value to hand on. Raise `InvalidArgument` if the given value does not fit."""
    if kind is None:
        return value
    found = kind.take(value)
    if found is _UNFIT:
        raise InvalidArgument(name, value, kind.wanted)
    return found


def _kinds_of(call: Callable[..., Any]) -> dict[str, Kind | None]:
    """Return the kind of each parameter; None if it takes every value.

    The type of the result may be one that only a type checker imports.
    """
    texts = {name: text for name, text in call.__annotations__.items() if name != "return"}
    place = types.SimpleNamespace(__annotations__=texts)
    hints = typing.get_type_hints(place, call.__globals__, include_extras=True)
    for name, hint in [*hints.items()]:
        if typing.get_origin(hint) is typing.Unpack:
            hints |= typing.get_type_hints(typing.get_args(hints.pop(name))[0], include_extras=True)
    return {name: kind_of(hint) for name, hint in hints.items()}


def kind_of(hint: Any) -> Kind | None:
    """Return the kind that an annotation means; None if every value fits."""
    if hint is Any or hint is object or isinstance(hint, TypeVar):
        return None
    if hint in _PLAIN:
        return _PLAIN[hint]
    if hasattr(hint, "__supertype__"):
        return kind_of(hint.__supertype__)
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        bounds = [each for each in parts[1:] if isinstance(each, Within)]
        return _BOUNDED[parts[0]](bounds[0]) if bounds else kind_of(parts[0])
    if origin is Literal:
        return Kind(" or ".join(map(repr, parts)), lambda value: value if _is_one_of(value, parts) else _UNFIT)
    if origin in (Union, types.UnionType):
        return _one_of(parts)
    if origin is tuple:
        return _tuple_of(parts)
    if origin in (Mapping, dict):
        return _mapping_of(*map(kind_of, parts))
    if origin in (Sequence, collections.abc.Iterable):
        return _items_of(origin, kind_of(parts[0]))
    kind = origin or hint
    if kind is collections.abc.Callable:
        return Kind("something that can be called", lambda value: value if callable(value) else _UNFIT)
    if getattr(kind, "_is_protocol", False):
        return _with_names_of(kind)
    return _instance_of(kind) if isinstance(kind, type) else None


def _words(kind: Kind | None) -> str:
    return "anything" if kind is None else kind.wanted


def _is_one_of(value: Any, choices: tuple[Any, ...]) -> bool:
    return any(type(value) is type(each) and value == each for each in choices)


def _whole(bounds: Within) -> Kind:
    least, most = bounds.least, bounds.most

    def take(value: Any) -> Any:
        if type(value) is not int:
            if isinstance(value, bool):
                return _UNFIT
            try:
                value = operator.index(value)
            except TypeError:
                return _UNFIT
        return value if least <= value <= most else _UNFIT

    return Kind(f"a whole number from {least} to {most}", take)


def _number(bounds: Within) -> Kind:
    def take(value: Any) -> Any:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return value if is_number and bounds.least <= value <= bounds.most else _UNFIT  # NaN fails this comparison

    return Kind(f"a number from {bounds.least} to {bounds.most}", take)


def _take_text(value: Any) -> Any:
    if not isinstance(value, str):
        return _UNFIT
    text = value if type(value) is str else str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _UNFIT
    return text


def _take_octets(value: Any) -> Any:
    if type(value) is bytes:
        return value
    try:
        return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else _UNFIT
    except (ValueError, BufferError):  # the memoryview was released
        return _UNFIT


def _take_path(value: Any) -> Any:
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    return value if isinstance(path, str) and path and "\0" not in path else _UNFIT


def _take_none(value: Any) -> Any:
    return None if value is None else _UNFIT


def _take_bool(value: Any) -> Any:
    return value if value is True or value is False else _UNFIT


TEXT: Final = Kind("a text", _take_text)
_PATH: Final = Kind("a path as a text or a Path, not empty", _take_path)
_BOUNDED: Final = {int: _whole, float: _number}
_PLAIN: Final[dict[Any, Kind]] = {
    int: _whole(Within(0, WHOLE_MAX)),
    float: _number(Within(0, _NUMBER_MAX)),
    bool: Kind("True or False", _take_bool),
    str: TEXT,
    bytes: Kind("bytes", _take_octets),
    None: Kind("None", _take_none),
    type(None): Kind("None", _take_none),
}


def _one_of(hints: tuple[Any, ...]) -> Kind | None:
    """Return the kind of a union. A text beside a path means a path."""
    if any(typing.get_origin(hint) is os.PathLike or hint is os.PathLike for hint in hints):
        rest = [hint for hint in hints if hint is type(None)]
        kinds = [_PATH, *map(kind_of, rest)]
    else:
        kinds = [kind_of(hint) for hint in hints]
    known = [kind for kind in kinds if kind is not None]
    if len(known) < len(kinds):
        return None

    def take(value: Any) -> Any:
        for kind in known:
            found = kind.take(value)
            if found is not _UNFIT:
                return found
        return _UNFIT

    return Kind(" or ".join(kind.wanted for kind in known), take)


def _tuple_of(hints: tuple[Any, ...]) -> Kind:
    """Return the kind of a tuple of these parts, or of any number of one part: tuple[X, ...]."""
    is_open = len(hints) == 2 and hints[1] is ...
    kinds = [kind_of(hint) for hint in hints if hint is not ...]

    def take(value: Any) -> Any:
        if not isinstance(value, tuple) or not (is_open or len(value) == len(kinds)):
            return _UNFIT
        found = [
            part if kind is None else kind.take(part)
            for part, kind in zip(value, kinds * len(value) if is_open else kinds, strict=False)
        ]
        return _UNFIT if any(part is _UNFIT for part in found) else tuple(found)

    parts = f"{_words(kinds[0])}, each" if is_open else "; ".join(map(_words, kinds))
    return Kind(f"a tuple of {parts}", take)


def _mapping_of(key: Kind | None, item: Kind | None) -> Kind:
    def take(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return _UNFIT
        pairs = [(key.take(k) if key else k, item.take(v) if item else v) for k, v in value.items()]
        return _UNFIT if any(part is _UNFIT for pair in pairs for part in pair) else dict(pairs)

    return Kind(f"a mapping of {_words(key)} to {_words(item)}", take)


def _items_of(kind: Any, item: Kind | None) -> Kind:
    def take(value: Any) -> Any:
        if not isinstance(value, kind) or isinstance(value, (str, bytes, bytearray, memoryview)):
            return _UNFIT
        found = tuple([part if item is None else item.take(part) for part in value])
        return _UNFIT if any(part is _UNFIT for part in found) else found

    return Kind(f"items of which each is {_words(item)}", take)


def _with_names_of(protocol: Any) -> Kind:
    homes = [each for each in protocol.__mro__ if getattr(each, "_is_protocol", False) and each is not Protocol]
    names = [name for each in homes for name in (*vars(each), *vars(each).get("__annotations__", ()))]
    wanted = [name for name in names if not name.startswith("_") or name == "__call__"]

    def take(value: Any) -> Any:
        return value if all(hasattr(value, name) for name in wanted) else _UNFIT

    return Kind(f"a {protocol.__name__}", take)


def _instance_of(kind: type) -> Kind:
    return Kind(f"a {kind.__name__}", lambda value: value if isinstance(value, kind) else _UNFIT)
