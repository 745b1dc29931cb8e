"""Run a use case for a typer function: in the daemon that holds the data directory, or else in this process."""

from __future__ import annotations

import copy
import sys
import typing
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer
from typer.models import ParameterInfo

from offload.cli.progress import progress
from offload.cli.session import Session, session_of
from offload.commands.directory import Directory, Work
from offload.commands.parameters import parameters_of
from offload.commands.registry import Command, command_of
from offload.commands.results import json_line
from offload.errors import BadParameter, NoDaemon

if TYPE_CHECKING:
    from offload.archive import Archive
    from seglog import Log

__all__ = ["describe", "directory_of", "each", "is_json", "note", "one", "remark", "show"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., None])


def one(context: typer.Context, use: Callable[Concatenate[Any, P], R], *args: P.args, **values: P.kwargs) -> R:
    """Run a use case that has one result, and return the result. The caller gives every argument by name."""
    assert not args  # noqa: S101 - the signature needs `args` for the types
    [result] = _results(context, use, values)
    return result  # type: ignore[no-any-return]


def each(
    context: typer.Context, use: Callable[Concatenate[Any, P], Iterator[R]], *args: P.args, **values: P.kwargs
) -> Iterator[R]:
    """Run a use case, and yield its results as they come. The caller gives every argument by name."""
    assert not args  # noqa: S101 - the signature needs `args` for the types
    results = _results(context, use, values)
    context.call_on_close(results.close)
    return results


def show(context: typer.Context, result: Any, text: str) -> None:
    """Print a result on standard output: `text` for people, or with --json one line of JSON."""
    sys.stdout.write(json_line(result) if session_of(context).as_json else text + "\n")


def remark(context: typer.Context, text: str) -> None:
    """Print a line for people on standard output. With --json print nothing."""
    if not session_of(context).as_json:
        sys.stdout.write(text + "\n")


def is_json(context: typer.Context) -> bool:
    return session_of(context).as_json


def note(text: str) -> None:
    """Print a line on standard error, also with --json."""
    sys.stderr.write(text + "\n")


def _results(context: typer.Context, use: Callable[..., Any], values: Mapping[str, Any]) -> Generator[Any, None, None]:
    session, command = session_of(context), command_of(use)
    daemon = session.daemon()
    if daemon is not None:
        yield from daemon.results(command, values, remote=session.remote)
        return
    try:
        if command.check is not None:
            command.check(**values)
        with _opened(session, command, read_only=command.reads(values)) as place:
            yield from command.run(place, values)
    except BadParameter as error:
        raise typer.BadParameter(str(error)) from error


@contextmanager
def _opened(session: Session, command: Command, *, read_only: bool) -> Iterator[Log | Archive | Directory]:
    """Yield the part of the data directory that the command works on."""
    from offload.archive import Archive
    from seglog import Log

    if command.works_on is Log:
        with session.log(read_only=read_only) as log:
            yield log
    elif command.works_on is Archive:
        with session.archive(read_only=read_only) as (_, archive):
            yield archive
    else:
        with directory_of(session, read_only=read_only) as place:
            yield place


@contextmanager
def directory_of(session: Session, *, read_only: bool = False) -> Iterator[Directory]:
    with session.log_and_maybe_archive(read_only=read_only) as (log, maybe_archive):
        yield Directory(log, maybe_archive, _ThisProcess(session))


class _ThisProcess:
    """The command line as the `Host` of a command."""

    is_ending = False
    progress = staticmethod(progress)

    def __init__(self, session: Session) -> None:
        self._session = session

    def check_listener(self) -> None:
        """Do nothing: a write to a closed standard output fails by itself."""

    def retry(self, _name: str, /) -> None:
        raise NoDaemon(self._session.directory)

    def work(self, _name: str, /) -> Work | None:
        return None


def describe(use: Callable[..., Any]) -> Callable[[F], F]:
    """Give a typer function the docstring of its use case, and its parameters the help from there.

    A parameter of the function has the name that it has in the use case.
    """

    def described(function: F) -> F:
        hints = typing.get_type_hints(function, include_extras=True)
        for name, parameter in parameters_of(use).items():
            kind, info = typing.get_args(hints[name])[:2]
            assert isinstance(info, ParameterInfo)  # noqa: S101 - so are our commands written
            own = copy.copy(info)
            own.help = parameter.about.help
            hints[name] = Annotated[kind, own]
        function.__annotations__ = hints
        function.__doc__ = use.__doc__
        return function

    return described
