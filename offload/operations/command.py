"""A command of the product: an operation, and what a terminal shows of its results.

    SEAL = Command("seal", seal, print_sealed)

The types of the function tell the rest. The type of its first parameter is the part of the directory that the operation
works on. The types of the other parameters are the arguments of the command line and the schema of the HTTP request.
The type of the return value names the results. The docstring is the help.

The registry has the operations by their paths, such as `topic/create`. `make docs` writes the list of them
(offload.operations.listing), with the module of each. That module is imported when the operation is first asked for, so
that a command imports no other.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from offload.errors import InvalidOption, UnsupportedOption
from offload.operations.listing import COMMANDS as LISTED
from offload.operations.parameters import Parameter, hints_of, parameters_of, result_types
from offload.operations.printing import Printer
from offload.operations.results import ERROR, schemas_of

if TYPE_CHECKING:
    from offload.archive import Archive
    from offload.operations.directory import Directory
    from seglog import Log

__all__ = ["COMMANDS", "Command", "always", "command_of", "dry", "schemas"]

Condition: TypeAlias = Callable[[Mapping[str, Any]], bool]
Shared: TypeAlias = tuple[Mapping[str, Any], Callable[[Iterator[Any]], Iterator[Any]]]

_NAMING = frozenset({"topic", "plain topic", "point"})
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def always(_: Mapping[str, Any]) -> bool:
    return True


def never(_: Mapping[str, Any]) -> bool:
    return False


def dry(values: Mapping[str, Any]) -> bool:
    return bool(values["dry_run"])


def whole(values: Mapping[str, Any]) -> Shared:
    """Let the daemon do all the work."""
    return values, iter


@dataclass(frozen=True, slots=True)
class Command:
    """A command. Clients name it by its path, such as `topic/create`.

    `show` prints its results. A command without it is the command line's alone: its function takes the session, and
    prints itself. `reads` takes the arguments, and returns whether the command only reads. `takes` returns whether it
    takes something away. Such a command has the parameters `dry_run` and `yes`. `split` is for a client of the
    daemon: it takes the arguments, and returns those for the daemon with the work that the client does on the results.
    `role` is what a token needs, unless the command only reads (offload.rights). The output of one that `is_long` goes
    through the pager. One that `is_slow` may take long before it tells a result, and counts nothing meanwhile.
    """

    path: str
    function: Callable[..., Any]
    show: Printer | None = None
    reads: Condition = never
    takes: Condition = never
    split: Callable[[Mapping[str, Any]], Shared] = whole
    role: Literal["read", "admin"] = "admin"
    is_long: bool = False
    is_slow: bool = False

    @property
    def help(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def works_on(self) -> type[Log | Archive | Directory]:
        """Return the type of the first parameter."""
        first, *_ = hints_of(self.function).values()
        return first  # type: ignore[no-any-return]

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        return _parameters(self.function)

    @property
    def results(self) -> Mapping[str, type]:
        """Return the types of the results by their names."""
        return result_types(self.function)

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value for every parameter. Raises `UnsupportedOption`, `InvalidOption`."""
        parameters = self.parameters
        given = self._by_own_names(given)
        for name in given:
            if name not in parameters:
                raise UnsupportedOption(name, map(self.shown_name, parameters.values()))
        values = {}
        for name, parameter in parameters.items():
            value = given.get(name, parameter.default)
            shown = self.shown_name(parameter)
            if value is ...:
                raise InvalidOption(shown, "is missing")
            values[name] = parameter.take(value, shown)
        return values

    def shown_name(self, parameter: Parameter) -> str:
        """Return the name of a parameter in a request: that of its option, with underscores, such as `as`."""
        long = [name for name in parameter.options if name.startswith("--")]
        return long[-1].removeprefix("--").replace("-", "_") if long else parameter.name

    def in_json(self, text: str) -> str:
        """Return a text that names options of the command line, with their names in a request: `"yes": true`."""
        told = {}
        for each in self.parameters.values():
            name = f'"{self.shown_name(each)}"'
            told.update(dict.fromkeys(each.options, f"{name}: true" if each.kind is bool else name))
        return _OPTION.sub(lambda found: told.get(found[0], found[0]), text)

    def _by_own_names(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments by the names of the function. Raises `InvalidOption` for one that has two values."""
        shown = {self.shown_name(each): name for name, each in self.parameters.items()}
        found: dict[str, Any] = {}
        for name, value in given.items():
            own = name if name in self.parameters else shown.get(name, name)
            if own in found:
                raise InvalidOption(name, "is given twice, by two names")
            found[own] = value
        return found

    def topics(self, values: Mapping[str, Any]) -> list[str]:
        """Return the topics that the arguments name."""
        named = [values[name] for name, each in self.parameters.items() if each.about.names in _NAMING]
        return [text.partition(":")[0] for text in named if text]

    def run(self, place: Log | Archive | Directory, values: Mapping[str, Any]) -> Generator[Any, None, None]:
        """Run the command and yield its results."""
        found = self.function(place, **values)
        if isinstance(found, Iterator):
            yield from found
        else:
            yield found


@functools.cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, Parameter]:
    return parameters_of(function)


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
