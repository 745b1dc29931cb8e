"""The commands of the command line, in the order of the help.

A new command of the registry gets one line here: the function that prints its results. A command that works without an
open data directory, or that reads standard input, has a function of its own here. The signature and the docstring of
the function say all that `--help` shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from offload.cli import (
    append,
    doctor,
    gc,
    inspect,
    log,
    names,
    offload,
    read,
    removal,
    start,
    status,
    sync,
    topic,
    verify,
)
from offload.cli.execution import results_of
from offload.cli.output import Printer, lines
from offload.cli.session import Session
from offload.cli.streams import has_reader
from offload.commands.parameters import Parameter, parameters_of
from offload.commands.registry import COMMANDS

__all__ = ["GROUPS", "ListedCommand", "listed_commands"]

GROUPS: Mapping[str, str] = {
    "branch": "Branches of a topic.",
    "tag": "Names for points in a topic's history, which GC keeps.",
    "topic": "Topics and their configuration.",
}


@dataclass(frozen=True, slots=True)
class ListedCommand:
    """A command. `path` is such as `branch/create`. The signature and docstring of `described` are its help."""

    path: str
    described: Callable[..., Any]
    run: Callable[[Session, Mapping[str, Any]], None]

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        return parameters_of(self.described)


_FUNCTIONS: Mapping[str, Callable[..., None]] = {
    "init": start.init,
    "append": append.append,
    "read": read.print_records,
    "delete": lines(removal.deleted_text, removal.waiting_note("deleted")),
    "evict": lines(removal.evicted_text, removal.waiting_note("evicted")),
    "truncate": lines(removal.truncated_text, removal.waiting_note("truncated")),
    "seal": lines(offload.sealed_text),
    "offload": lines(offload.offloaded_text, offload.failure_note),
    "compact": offload.print_rewritten,
    "gc": lines(gc.outcome_text),
    "push": lines(sync.pushed_text),
    "pull": lines(sync.position_text),
    "fetch": lines(sync.position_text),
    "sync": sync.print_synced,
    "reset": lines(sync.reset_text),
    "takeover": lines(sync.taken_over_text),
    "pause": lines(lambda paused: f"{paused.topic} is paused"),
    "resume": lines(lambda paused: f"{paused.topic} is resumed"),
    "retry": lines(lambda retried: f"{retried.topic} is tried again"),
    "uploads": offload.print_uploads,
    "status": lines(status.status_text),
    "log": log.print_commits,
    "restore": lines(names.branch_made_text),
    "oplog": lines(names.operation_text),
    "undo": lines(lambda undone: f"undone: {names.operation_text(undone)}"),
    "inspect": inspect.inspect,
    "verify": verify.verify,
    "recover": start.recover,
    "doctor": doctor.doctor,
    "serve": start.serve,
    "branch/create": lines(names.branch_made_text),
    "branch/list": lines(names.branch_text),
    "branch/delete": lines(names.branch_deleted_text),
    "branch/undelete": lines(lambda back: f"{back.branch} is back"),
    "branch/rename": names.print_renamed,
    "branch/promote": lines(names.promoted_text),
    "branch/diff": lines(names.side_text),
    "tag/create": lines(names.tag_text),
    "tag/list": lines(names.tag_text),
    "tag/delete": lines(lambda gone: f"tag {gone.tag} is deleted"),
    "topic/create": lines(lambda made: f"made topic {made.topic}"),
    "topic/set": lines(topic.configured_text),
    "topic/show": lines(topic.shown_text),
    "topic/delete": lines(topic.gone_text),
    "topic/list": lines(topic.listed_text),
}


def listed_commands() -> Iterator[ListedCommand]:
    """Yield the commands in the order of the help."""
    for path, function in _FUNCTIONS.items():
        if path in COMMANDS:
            yield ListedCommand(path, COMMANDS[path].function, _in_registry(path, function))
        else:
            yield ListedCommand(path, function, _alone(function))


def _in_registry(path: str, printer: Printer) -> Callable[[Session, Mapping[str, Any]], None]:
    def run(session: Session, values: Mapping[str, Any]) -> None:
        command = COMMANDS[path]
        with closing(results_of(session, command, values)) as results:
            ends_early = command.reads(values) or bool(values.get("follow"))
            printer(session.output, _while_read(results) if ends_early else results, values)

    return run


def _while_read(results: Iterator[Any]) -> Iterator[Any]:
    """Yield the results until the reader of the output has gone."""
    for result in results:
        yield result
        if not has_reader():
            return


def _alone(function: Callable[..., None]) -> Callable[[Session, Mapping[str, Any]], None]:
    return lambda session, values: function(session, **values)
