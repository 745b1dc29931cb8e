"""The commands that the daemon runs for its clients: commands of the command line, with their names and options.

One implementation serves `seglog offload orders --drop-hot`, with a daemon or without, and

    POST /topics/orders/rpc/offload      {"drop_hot": true}

A parameter has the name that it has in the code (`drop_hot`, `up_to`). The signature of the command lists the
parameters. The answer holds the lines that `--json` prints, one object a line. Our own client gets a stream of
messages instead (offload.wire).
"""

from __future__ import annotations

import contextvars
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import typer
from typer.models import ArgumentInfo, OptionInfo

from offload.archive import Archive
from offload.cli import (
    seal,
    status,
    sync,
    tag,
    topic,
    truncate,
    uploads,
)
from offload.cli.output import write_to
from offload.cli.session import Session
from offload.commands.parameters import About, Parameter
from offload.daemon.jobs import Stream
from offload.daemon.service import Service
from offload.errors import Busy, InvalidOption, NoRemote, OtherRemote, UnsupportedOption
from seglog import Log

__all__ = ["COMMANDS", "Command", "start"]

_RETRY_AFTER_S = 1


class Command:
    """A command of the table `COMMANDS`. `path` is its name there, such as `topic/create`."""

    def __init__(self, path: str, function: Callable[..., None]) -> None:
        self.path = path
        self.function = function
        self.summary = (inspect.getdoc(function) or "").partition("\n")[0]
        self.parameters = {each.name: each for each in _parameters(function)}

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value for every parameter. Raises `UnsupportedOption`, `InvalidOption`."""
        for name in given:
            if name not in self.parameters:
                raise UnsupportedOption(name, self.parameters)
        values = {}
        for name, parameter in self.parameters.items():
            value = given.get(name, parameter.default)
            if value is ...:
                raise InvalidOption(name, "is missing")
            values[name] = parameter.take(value)
        return values


def start(
    service: Service, command: Command, given: Mapping[str, Any], *, as_json: bool, remote: str | None = None
) -> Stream:
    """Run a command in a thread of its own, and return the stream that carries its output.

    Call it in the event loop. Raises `UnsupportedOption` or `InvalidOption` for wrong parameters, and `Busy` if no
    thread is free.
    """
    values = command.arguments(given)
    stream = Stream()
    session = _ServedSession(service.sync.path, remote, as_json, False, service)
    if not service.free_commands.acquire(blocking=False):
        raise Busy(_RETRY_AFTER_S)

    def run() -> None:
        write_to(_Output(stream))
        try:
            command.function(cast("typer.Context", _Context(session)), **values)
        except BaseException as error:
            service.free_commands.release()
            stream.end(error)
        else:
            service.free_commands.release()
            stream.end(None)

    service.commands.submit(contextvars.copy_context().run, run)
    return stream


class _Output:
    """The `Output` of a command whose stream the daemon sends."""

    is_watched = False

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def text(self, text: str) -> None:
        self._stream.put(b"o", text.encode())

    def data(self, body: bytes) -> None:
        self._stream.put(b"o", body)

    def note(self, text: str) -> None:
        self._stream.put(b"e", text.encode())

    def flush(self) -> None:
        self._stream.check()

    def abandon(self) -> None:
        self._stream.abandon()


@dataclass(slots=True)
class _ServedSession(Session):
    """A session that gives a command the daemon's open log and archive, instead of opening its own."""

    service: Service

    @contextmanager
    def log(self, *, read_only: bool = False) -> Iterator[Log]:  # noqa: ARG002 - the daemon's log is open
        yield self.service.sync

    @contextmanager
    def archive(self, *, read_only: bool = False) -> Iterator[tuple[Log, Archive]]:  # noqa: ARG002
        archive = self._archive()
        if archive is None:
            raise NoRemote(self.directory)
        yield self.service.sync, archive

    @contextmanager
    def log_and_maybe_archive(self, *, read_only: bool = False) -> Iterator[tuple[Log, Archive | None]]:  # noqa: ARG002
        yield self.service.sync, self._archive()

    @property
    def is_ending(self) -> bool:
        return self.service.stopping.is_set()

    def retry(self, name: str, /) -> None:
        self.service.retry(name)

    def work(self, name: str, /) -> dict[str, object]:
        work, now_ms = self.service.work(name), self.service.now_ms()
        return {
            "is_offloading": work.is_running,
            "failures": work.failures,
            "last_error": work.last_error,
            "retry_in_s": work.wait_ms(now_ms) / 1000 if work.failures else None,
        }

    def _archive(self) -> Archive | None:
        archive = self.service.archive
        if self.remote is not None and (archive is None or self.remote.rstrip("/") != archive.url.rstrip("/")):
            raise OtherRemote("this directory, which a daemon serves,", self.remote, archive.url if archive else "none")
        return archive


class _Context:
    """A stand-in for typer's context, with the parts that a command uses."""

    def __init__(self, session: Session) -> None:
        self.obj = session

    def find_root(self) -> _Context:
        return self


def _parameters(function: Callable[..., None]) -> Iterator[Parameter]:
    hints = typing.get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if hint is typer.Context:
            continue
        annotated, info = typing.get_args(hint)[:2]
        assert isinstance(info, ArgumentInfo | OptionInfo)  # noqa: S101 - so are our commands written
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        yield Parameter(name, _kind(annotated), default, About(info.help or "", info.min, info.callback))


def _kind(hint: Any) -> type:
    """Return the plain type of a parameter. For `int | None` it is int."""
    if isinstance(hint, types.UnionType):
        [hint] = [each for each in typing.get_args(hint) if each is not type(None)]
    assert isinstance(hint, type)  # noqa: S101 - a parameter of ours has a plain type
    return hint


_FUNCTIONS: Mapping[str, Callable[..., None]] = {
    "truncate": truncate.truncate,
    "seal": seal.seal,
    "push": sync.push,
    "pull": sync.pull,
    "fetch": sync.fetch,
    "sync": sync.sync,
    "reset": sync.reset,
    "takeover": sync.takeover,
    "status": status.status,
    "uploads": uploads.uploads,
    "tag/create": tag.create,
    "tag/list": tag.list_tags,
    "tag/delete": tag.delete,
    "topic/create": topic.create,
    "topic/set": topic.set_config,
    "topic/show": topic.show,
    "topic/delete": topic.delete,
    "topic/list": topic.list_topics,
}
COMMANDS: Mapping[str, Command] = {path: Command(path, function) for path, function in _FUNCTIONS.items()}
