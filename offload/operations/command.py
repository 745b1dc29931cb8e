"""A command of the product: an operation, and what a terminal shows of its results.

    SEAL = Command("seal", seal, print_sealed)

The types of the function tell the rest. The type of its first parameter is the part of the directory that the operation
works on. The types of the other parameters are the arguments of the command line and the schema of the HTTP request.
The type of the return value names the results. The docstring is the help.

The registry has the operations by their paths, such as `topic/create`. `make docs` writes the list of them
(offload.operations.command_list), with the module of each. That module is imported when the operation is first asked
for, so that a command imports no other.

A `Directory` is what a command works on, and a `Host` the process that holds it open.

**Parameters.** The signature of a function declares them: `Annotated[int, About("…", least=1)]`.

The modules of the commands import some types for type checking only, because their import takes longer than all the
rest of a command that the daemon serves. So these are imported when a hint names them.
"""

from __future__ import annotations

import enum
import functools
import importlib
import types
import typing
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, TypeAlias

from offload.errors import InvalidOption, NoRemote
from offload.operations.command_list import COMMANDS as LISTED
from offload.operations.listed_command import SECTIONS
from offload.operations.printing import Printer
from seglog.base.arguments import WHOLE_MAX, Kind, Within, kind_of, taken
from seglog.base.dataclasses import dataclass
from seglog.base.errors import InvalidArgument
from seglog.base.lazy import pattern

if TYPE_CHECKING:
    from catalog.gc.policy import Watch
    from offload.archive import Archive
    from seglog import Log

SHOWN_TYPE: Final = "application/vnd.seglog.results"
"""The type of an answer for a client that shows the results to people (`offload.operations.result_json.message`)."""
LINES_HEADER: Final = "Seglog-Lines"
"""The header of a request whose client takes records as lines alone."""

_HOMES = {"Archive": "offload.archive", "Directory": "offload.operations.command", "Log": "seglog.log"}


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
        try:
            fitting = taken(shown, value, self._fitting)
        except InvalidArgument as error:
            raise InvalidOption(shown, f"{value!r} is not {error.wanted}") from error
        return self.kind(fitting) if issubclass(self.kind, enum.Enum) else self._cleaned(fitting)

    @property
    def _fitting(self) -> Kind | None:
        """Return the values that fit, as the arguments of public calls are checked."""
        if issubclass(self.kind, enum.Enum):
            return kind_of(Literal[tuple(member.value for member in self.kind)])
        if self.kind in (int, float):
            return kind_of(Annotated[self.kind, Within(self.about.least or 0, WHOLE_MAX)])
        return kind_of(self.kind)

    def _cleaned(self, value: Any) -> Any:
        return value if self.about.clean is None else self.about.clean(value)


def parameters_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a command's function by name. The first one, its log or archive, is not among them."""
    names = [name for name in function.__annotations__ if name != "return"][1:]
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    last = zip(reversed(positional), reversed(function.__defaults__ or ()), strict=False)
    defaults = {**dict(last), **(function.__kwdefaults__ or {})}
    texts = types.SimpleNamespace(__annotations__={name: function.__annotations__[name] for name in names})
    hints = typing.get_type_hints(texts, getattr(function, "__globals__", None), include_extras=True)
    found = {}
    for name in names:
        annotated, about = typing.get_args(hints[name])[:2]
        found[name] = Parameter(name, _kind(annotated), defaults.get(name, ...), about)
    return found


def _kind(hint: Any) -> type:
    """Return the plain type of a parameter. For `int | None` it is int."""
    if isinstance(hint, types.UnionType):
        [hint] = [each for each in typing.get_args(hint) if each is not type(None)]
    assert isinstance(hint, type)  # noqa: S101 - a parameter of ours has a plain type
    return hint


Tell = Callable[[str, int | None, int, str], None]
"""Takes the progress of a phase: its title, the total or None, the part that is done, and the unit.

The unit is `bytes`, or a noun such as `volumes`. A new title begins a new phase.
"""


def watch_of(tell: Tell, title: str) -> Watch:
    """Return a function that takes the progress of phases by their own names, and tells it with `title` before them."""
    return lambda phase, done, total, unit: tell(f"{title}, {phase}", total, done, unit)


@dataclass(frozen=True, slots=True)
class Work:
    """The daemon's state of a topic's offload. `hint` says what to do about the last error."""

    is_offloading: bool
    failures: int
    last_error: str | None
    retry_in_s: float | None
    hint: str | None = field(default=None, metadata={"json": "hidden"})


@dataclass(frozen=True, slots=True)
class RequestsSeen:
    """The requests that a process made to the store, by method, in the last `covers_s` seconds: a day at most."""

    covers_s: float
    methods: Mapping[str, int]


class Host(Protocol):
    """The port to the process that runs the command: the command line, or the daemon."""

    @property
    def is_ending(self) -> bool:
        """Return whether the process stops, so that a waiting command should end."""

    @property
    def serves_others(self) -> bool:
        """Return whether the process has other clients, which wait while it looks for a pattern."""

    @property
    def takes_lines(self) -> bool:
        """Return whether the process takes records as lines alone, without their seqs, times and labels."""

    def check_listener(self) -> None:
        """Raise `BrokenPipeError` if nothing takes the results any more."""

    def progress(self, title: str, total_bytes: int | None) -> AbstractContextManager[Callable[[int], None]]:
        """Yield a function that takes the number of bytes done since its last call."""

    def phases(self) -> AbstractContextManager[Tell]:
        """Yield a function that takes the progress of an operation with several phases, or without bytes."""

    def requests(self) -> RequestsSeen | None:
        """Return the requests that the daemon made to the store, or None without a daemon."""

    def retry(self, name: str, /) -> None:
        """Let the daemon try a failed offload again. Raises `Misuse` without a daemon."""

    def work(self, name: str, /) -> Work | None:
        """Return the daemon's state of a topic's offload, or None without a daemon."""

    def delivery_pause(self, priority: int, is_replica: bool, /) -> str | None:
        """Return why the daemon pauses the followers of topics, or of replicas, with this priority; or None."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A data directory, and the process that holds it. On the command line, its first use opens it.

    So a command checks its arguments first, and wrong ones open nothing. `opened` returns the log and its archive.
    """

    opened: Callable[[], tuple[Log, Archive | None]]
    host: Host

    @property
    def log(self) -> Log:
        return self.opened()[0]

    @property
    def maybe_archive(self) -> Archive | None:
        """Return the archive, or None if the directory has no remote."""
        return self.opened()[1]

    @property
    def archive(self) -> Archive:
        """Return the archive. Raises `NoRemote`."""
        log, archive = self.opened()
        if archive is None:
            raise NoRemote(log.path)
        return archive

    @contextmanager
    def watched(self, title: str) -> Iterator[Watch]:
        """Yield a function that takes the progress of phases, and tells it to the host with `title` before them."""
        with self.host.phases() as tell:
            yield watch_of(tell, title)

    @contextmanager
    def counting(self, title: str) -> Iterator[None]:
        """Show the progress of the work within, as the parts of the archive count it (seglog.base.progress)."""
        from seglog.base.progress import watching

        with self.host.phases() as tell:
            tell(title, None, 0, "commits")
            with watching(watch_of(tell, title)):
                yield


Condition: TypeAlias = Callable[[Mapping[str, Any]], bool]
Shared: TypeAlias = tuple[Mapping[str, Any], Callable[[Iterator[Any]], Iterator[Any]]]

_NAMING = frozenset({"topic", "plain topic", "point"})
_OPTION = pattern(r"(?<![\w-])--?[a-z][a-z-]*")


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
    `role` is what a token needs, unless the command only reads (offload.token_rights). The output of one that `is_long`
    goes through the pager. One that `is_slow` may take long before it tells a result, and counts nothing meanwhile.
    `section` is the part of `seglog --help` that has the command, and `aliases` are its other names.
    """

    path: str
    function: Callable[..., Any]
    show: Printer | None = None
    reads: Condition = never
    takes: Condition = never
    split: Callable[[Mapping[str, Any]], Shared] = whole
    role: Literal["read", "append", "admin"] = "admin"
    is_long: bool = False
    is_slow: bool = False
    section: str = SECTIONS[-1]
    aliases: tuple[str, ...] = ()

    @property
    def help(self) -> str:
        from inspect import getdoc

        return getdoc(self.function) or ""

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
        """Return a value for every parameter. Raises `InvalidOption`."""
        parameters = self.parameters
        given = self._by_own_names(given)
        for name in given:
            if name not in parameters:
                raise InvalidOption.unknown(name, map(self.shown_name, parameters.values()))
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
    from offload.operations import append, bisect, demo, doctor, export, init, inspect, standby, tenant, verify
    from offload.operations.result_json import ERROR, schemas_of
    from offload.token_rights import make_token

    served = [command.function for command in COMMANDS.values()]
    others: list[Callable[..., Any]] = [
        demo.demo,
        init.init,
        append.append,
        bisect.bisect,
        export.export,
        export.verify,
        standby.follow,
        inspect.inspect,
        inspect.entries,
        verify.verify,
        verify.verify_remote,
        verify.verify_part,
        doctor.doctor,
        doctor.doctor_directory,
        tenant.delete,
        tenant.preview,
        make_token,
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
