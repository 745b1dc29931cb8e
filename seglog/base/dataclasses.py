"""`dataclass` of the standard library, at a twentieth of what it costs a module that is imported.

`dataclasses` compiles up to seven methods for each class at once: half a millisecond a class, and a command imports
over a hundred. Here all classes share the code of their methods. Only `__init__` is compiled, when it is first used.
`fields`, `replace`, `match`, `copy` and `pickle` work as they do with `dataclasses`. An `InitVar`, and a hash of other
fields than those that are compared, are refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, InitVar, fields
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from dataclasses import dataclass as _dataclass

    def dataclass(*, frozen=False, slots=True, eq=True, order=False, kw_only=False) -> Callable[[type], type]:
        """Return a decorator that makes a dataclass of a class. The methods that the class has itself stay."""

        def made(own: type) -> type:
            own.__doc__ = own.__doc__ or f"{own.__name__}(...)"  # else `dataclasses` takes it from the signature
            # `dataclasses` lets a frozen class inherit from frozen ones alone, and so do we.
            bases = [base for base in own.__mro__[1:] if hasattr(base, "__dataclass_params__")]
            is_below = any(base.__dataclass_params__.frozen for base in bases)
            # `dataclasses` looks with patterns whether a text means a ClassVar, and at no other type.
            texts = vars(own).get("__annotations__", {})
            plain = {name: text for name, text in texts.items() if _is_plain(text)}
            own.__annotations__ = {**texts, **dict.fromkeys(plain, object)}
            kind = _dataclass(init=False, repr=False, eq=False, frozen=is_below, slots=slots, kw_only=kw_only)(own)
            kind.__annotations__ = texts
            for name, text in plain.items():
                kind.__dataclass_fields__[name].type = text
            kind.__dataclass_params__.frozen = frozen
            _check_fields(kind)
            for name, method in _methods(kind, frozen=frozen, eq=eq, order=order).items():
                if own.__dict__.get(name) is None:  # Python itself sets `__hash__` to None beside an `__eq__`
                    setattr(kind, name, method)
            return kind

        return made


def _check_fields(kind: Any) -> None:
    """Raise `TypeError` if a field asks for what this decorator does not do."""
    shown = {field.name: field for field in fields(kind)}
    for field in kind.__dataclass_fields__.values():
        if field.name not in shown and (isinstance(field.type, InitVar) or "InitVar" in str(field.type)):
            raise TypeError(f"{kind.__qualname__}.{field.name} is an InitVar: use dataclasses.dataclass for this class")
    for field in shown.values():
        if field.hash not in {None, field.compare}:
            raise TypeError(
                f"{kind.__qualname__}.{field.name} has hash={field.hash} and compare={field.compare}: give them the "
                "same value, or use dataclasses.dataclass for this class"
            )


def _is_plain(text: Any) -> bool:
    """Return whether an annotation is a text, and surely that of a field."""
    return isinstance(text, str) and not ("ClassVar" in text or "InitVar" in text or "KW_ONLY" in text)


def _methods(kind: type, *, frozen: bool, eq: bool, order: bool) -> dict[str, Any]:
    values = _values_of([field.name for field in fields(kind) if field.compare])
    methods: dict[str, Any] = {"__init__": _LateInit(kind, frozen), "__repr__": _repr}
    if frozen:
        methods |= {"__setattr__": _refuse_set, "__delattr__": _refuse_delete}
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    if eq:
        methods |= {"__eq__": _comparison(operator.eq, values), "__hash__": _hash(values) if frozen else None}
    if order:
        for test in (operator.lt, operator.le, operator.gt, operator.ge):
            methods[f"__{test.__name__}__"] = _comparison(test, values)
    return methods


class _Factory:
    """Stands in a signature for a default that each object gets anew."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _LateInit:
    """The `__init__` of a dataclass. The first use of it puts a compiled one in its place."""

    def __init__(self, kind: type, frozen: bool) -> None:
        self._kind = kind
        self._frozen = frozen

    def __get__(self, owner: Any, _kind: type | None = None) -> Any:
        made = _compiled_init(self._kind, frozen=self._frozen)
        self._kind.__init__ = made  # type: ignore[misc]
        return made if owner is None else made.__get__(owner)


def _compiled_init(kind: Any, *, frozen: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"FACTORY": _FACTORY, "SET": object.__setattr__}
    plain, named, lines = ["self"], ["*"], []
    for field in fields(kind):
        default, value = _default_and_value(field, names)
        if field.init:
            (named if field.kw_only else plain).append(field.name + default)
        if value:
            lines.append(f" SET(self, {field.name!r}, {value})" if frozen else f" self.{field.name} = {value}")
    if hasattr(kind, "__post_init__"):
        lines.append(" self.__post_init__()")
    parameters = ", ".join(plain + named if named[1:] else plain)
    exec("\n".join([f"def __init__({parameters}):", *lines, " return"]), names)  # noqa: S102 - names of fields alone
    made = names["__init__"]
    made.__module__, made.__qualname__ = kind.__module__, f"{kind.__qualname__}.__init__"
    made.__annotations__ = {**{field.name: field.type for field in fields(kind) if field.init}, "return": None}
    return made  # type: ignore[no-any-return]


def _default_and_value(field: Field[Any], names: dict[str, Any]) -> tuple[str, str]:
    """Return the text of a parameter's default and that of the field's value. What they name goes to `names`."""
    own = field.name
    if field.default_factory is not MISSING:
        names[f"MAKE_{own}"] = field.default_factory
        return "=FACTORY", f"MAKE_{own}() if {own} is FACTORY else {own}" if field.init else f"MAKE_{own}()"
    if field.default is MISSING:
        return "", own if field.init else ""
    names[f"DEFAULT_{own}"] = field.default
    return f"=DEFAULT_{own}", own if field.init else f"DEFAULT_{own}"


def _values_of(names: Sequence[str]) -> Callable[[Any], Any]:
    if len(names) == 1:
        only = operator.attrgetter(names[0])
        return lambda self: (only(self),)  # a tuple compares its elements by identity first
    return operator.attrgetter(*names) if names else lambda _: ()


def _comparison(test: Callable[[Any, Any], Any], values: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: Any) -> Any:
        return test(values(self), values(other)) if other.__class__ is self.__class__ else NotImplemented

    return compare


def _hash(values: Callable[[Any], Any]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))


@recursive_repr()
def _repr(self: Any) -> str:
    told = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({told})"


def _refuse_set(_self: Any, name: str, _value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(_self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _set_state(self: Any, values: Sequence[Any]) -> None:
    for field, value in zip(fields(self), values, strict=True):
        object.__setattr__(self, field.name, value)
