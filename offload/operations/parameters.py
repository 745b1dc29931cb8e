"""The parameters of a command. The signature of its function declares them: `Annotated[int, About("…", least=1)]`.

The modules of the commands import some types for type checking only, because their import takes longer than all the
rest of a command that the daemon serves. So these are imported when a hint names them.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from offload.errors import InvalidOption
from seglog.base.arguments import WHOLE_MAX

__all__ = [
    "About",
    "DryRun",
    "Parameter",
    "PlainTopicName",
    "Reason",
    "TopicName",
    "Yes",
    "hints_of",
    "parameters_of",
    "result_types",
    "with_branch",
    "without_main",
]

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


def _result_hint(function: Callable[..., Any]) -> Any:
    """Return the type of a function's result. The types of its parameters are not imported."""
    only = types.SimpleNamespace(__annotations__={"return": function.__annotations__["return"]})
    return typing.get_type_hints(only, function.__globals__, _LATE)["return"]


def result_types(function: Callable[..., Any]) -> Mapping[str, type]:
    """Return the classes of a function's results by their names. A function returns one, or an iterator of them."""
    hint = _result_hint(function)
    if typing.get_origin(hint) is Iterator:
        [hint] = typing.get_args(hint)
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return {kind.__name__: kind for kind in kinds}


@dataclass(frozen=True, slots=True)
class About:
    """The description of a parameter, for the command line and for the daemon.

    On the command line, a parameter without a default is an argument. A parameter with a default is an option, which
    has the parameter's name. `option` makes it an option with other names, such as `-m --message`. `metavar` names the
    value in the help, and `shown_default` stands there for the default. `clean` maps a client's value to the value that
    the command gets. `names` says what the value names: branch, plain topic, point, tag, target, time or topic. A shell
    offers these names. The command line understands more forms of a time than the command. With `is_file`, the value on
    the command line is the path of a file, and the command gets the text of the file.
    """

    help: str
    option: str = ""
    least: float | None = None
    clean: Callable[[Any], Any] | None = None
    is_argument: bool = False
    metavar: str | None = None
    shown_default: str | None = None
    names: str = ""
    is_file: bool = False


def without_main(name: str | None) -> str | None:
    """Return the name without `@main`: `orders` for `orders@main`."""
    return name.removesuffix("@main") if name else name


TopicName = Annotated[str, About("TOPIC or TOPIC@BRANCH.", clean=without_main, metavar="TOPIC", names="topic")]
PlainTopicName = Annotated[str, About("The topic.", names="plain topic")]
DryRun = Annotated[bool, About("Show what would go, and change nothing.")]
Yes = Annotated[bool, About("Do it without a question.")]
Reason = Annotated[str, About("Why. The commit or the oplog keeps it.", "-m --message")]


def with_branch(topic: str, branch: str | None) -> str:
    """Return the name of the topic, or of its branch if `branch` gives one."""
    return f"{topic}@{branch}" if branch and branch != "main" else topic


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a command. `kind` is str, int, float, bool or a StrEnum. On the command line it may be a Path.

    A parameter with the default `...` has no default: the client must give a value.
    """

    name: str
    kind: type
    default: Any
    about: About

    @property
    def options(self) -> tuple[str, ...]:
        """Return the names of the option on the command line, or () if the parameter is an argument there."""
        if self.about.option or self.about.is_argument or self.default is ...:
            return tuple(self.about.option.split())
        return (f"--{self.name.replace('_', '-')}",)

    def take(self, value: Any, shown: str) -> Any:
        """Return the value that the command gets for a client's value. Raises `InvalidOption` with the name `shown`."""
        if value is None:
            if self.default is ...:
                raise InvalidOption(shown, "is missing")
            if self.default is not None:
                raise InvalidOption(shown, "must not be null")
            return self._cleaned(None)
        if issubclass(self.kind, enum.Enum):
            if value not in [member.value for member in self.kind]:
                raise InvalidOption(shown, f"{value!r} is none of {', '.join(each.value for each in self.kind)}")
            return self.kind(value)
        fits = type(value) is self.kind or (self.kind is float and type(value) is int)
        if not fits:
            raise InvalidOption(shown, f"{value!r} is not of type {self.kind.__name__}")
        if self.kind in (int, float):
            least = self.about.least or 0
            if not least <= value <= WHOLE_MAX:  # NaN fails this comparison as well
                raise InvalidOption(shown, f"{value!r} is not within {least} and {WHOLE_MAX}")
        return self._cleaned(value)

    def _cleaned(self, value: Any) -> Any:
        return value if self.about.clean is None else self.about.clean(value)


def parameters_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a command's function by name. The first one, its log or archive, is not among them."""
    own = dict(list(inspect.signature(function).parameters.items())[1:])
    texts = types.SimpleNamespace(__annotations__={name: function.__annotations__[name] for name in own})
    hints = typing.get_type_hints(texts, getattr(function, "__globals__", None), include_extras=True)
    found = {}
    for name, parameter in own.items():
        annotated, about = typing.get_args(hints[name])[:2]
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        found[name] = Parameter(name, _kind(annotated), default, about)
    return found


def _kind(hint: Any) -> type:
    """Return the plain type of a parameter. For `int | None` it is int."""
    if isinstance(hint, types.UnionType):
        [hint] = [each for each in typing.get_args(hint) if each is not type(None)]
    assert isinstance(hint, type)  # noqa: S101 - a parameter of ours has a plain type
    return hint
