"""The commands of the command line, in the order of the help.

A new command of the registry gets one line here: the function that prints its results. A command that works without an
open data directory, or that reads standard input, has a function of its own here. The signature and the docstring of
the function say all that `--help` shows. `make docs` writes them to `offload.cli.listing`, from which the front door
answers without any import.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from offload.cli.execution import results_of
from offload.cli.listed import ListedCommand, ListedParameter
from offload.cli.progress import while_waiting
from offload.cli.session import Session
from offload.cli.streams import has_reader
from offload.cli.top import COMPLETION
from offload.commands.parameters import Parameter, parameters_of, without_main
from offload.commands.registry import COMMANDS, Command
from offload.errors import InvalidParameters, NoSuchFile
from seglog.process import closed_after

__all__ = ["described", "listed_commands", "run_command"]

_FUNCTIONS: Mapping[str, str] = {
    "init": "start.init",
    "append": "append.append",
    "read": "read.print_records",
    "delete": "removal.print_deleted",
    "evict": "removal.print_evicted",
    "truncate": "removal.print_truncated",
    "seal": "offload.print_sealed",
    "offload": "offload.print_offloaded",
    "compact": "offload.print_rewritten",
    "gc": "gc.print_outcome",
    "gc/plan": "gc.print_step",
    "gc/apply": "gc.print_step",
    "gc/explain": "gc.print_step",
    "cost": "cost.print_cost",
    "push": "sync.print_pushed",
    "pull": "sync.print_position",
    "fetch": "sync.print_position",
    "sync": "sync.print_synced",
    "reset": "sync.print_reset",
    "takeover": "sync.print_taken_over",
    "pause": "offload.print_paused",
    "resume": "offload.print_resumed",
    "retry": "offload.print_retried",
    "uploads": "offload.print_uploads",
    "status": "status.print_status",
    "log": "log.print_commits",
    "show": "log.print_shown",
    "diff": "diff.print_diff",
    "segments": "log.print_segments",
    "points": "moments.print_points",
    "resolve": "moments.print_resolved",
    "bisect": "bisect.bisect",
    "export": "export.export",
    "restore": "names.print_branch_made",
    "oplog": "names.print_operation",
    "undo": "names.print_undone",
    "inspect": "inspect.inspect",
    "verify": "verify.verify",
    "recover": "start.recover",
    "follow": "follow.follow",
    "doctor": "doctor.doctor",
    "serve": "start.serve",
    "token/new": "token.new",
    "tenant/list": "tenant.list_tenants",
    "tenant/policy": "tenant.policy",
    "tenant/bucket-policy": "tenant.bucket_policy",
    "tenant/delete": "tenant_delete.delete",
    "tenant/check": "tenant_credentials.check",
    "tenant/credentials": "tenant_credentials.credentials",
    "branch/create": "names.print_branch_made",
    "branch/list": "names.print_branch",
    "branch/delete": "names.print_branch_deleted",
    "branch/undelete": "names.print_branch_back",
    "branch/rename": "names.print_renamed",
    "branch/promote": "names.print_promoted",
    "branch/diff": "names.print_side",
    "tag/create": "names.print_tag",
    "tag/list": "names.print_tag",
    "tag/delete": "names.print_tag_deleted",
    "pin/list": "names.print_pin",
    "pin/refresh": "names.print_pin",
    "pin/release": "names.print_pin_released",
    "topic/create": "topic.print_made",
    "topic/set": "topic.print_configured",
    "topic/show": "topic.print_shown",
    "topic/delete": "topic.print_gone",
    "topic/list": "topic.print_listed",
}

#: The commands that may take long before they tell a result, and count nothing meanwhile.
_SLOW = frozenset({"fetch", "pull", "reset", "restore", "takeover"})


def run_command(session: Session, path: str, values: Mapping[str, Any]) -> Callable[[], None]:
    """Import all that a command needs, and return the function that runs it."""
    function = _function(path)
    if path not in COMMANDS:
        return lambda: function(session, **values)
    command = COMMANDS[path]
    command.function  # noqa: B018 - the import
    values = _with_texts(command, values)

    def run() -> None:
        if values.get("watch"):
            _watch(session, command, values)
            return
        given = _confirmed(session, command, values) if command.takes(values) else values
        with closed_after(results_of(session, command, given, takes_lines=not session.as_json)) as results:
            ends_early = command.reads(given) or bool(given.get("follow"))
            waits = path in _SLOW and not given.get("follow")
            shown = while_waiting(results, command.path, is_shown=waits and session.shows_progress)
            function(session.output, _while_read(shown) if ends_early else shown, given)

    return run


def _watch(session: Session, command: Command, values: Mapping[str, Any]) -> None:
    """Print the status again and again. Each look opens the directory for itself, so it blocks no writer for long."""
    from offload.cli.status import watch_status

    watch_status(session.output, lambda: results_of(session, command, values), values)


def described(path: str) -> Callable[..., Any]:
    """Return the function whose signature and docstring are the help of a command."""
    return COMMANDS[path].function if path in COMMANDS else _function(path)


def listed_commands() -> Iterator[ListedCommand]:
    """Yield the commands in the order of the help. The front door answers the last one itself."""
    for path in _FUNCTIONS:
        function = described(path)
        parameters = tuple(map(_listed, parameters_of(function).values()))
        yield ListedCommand(path, inspect.getdoc(function) or "", parameters)
    yield COMPLETION


def _confirmed(session: Session, command: Command, values: Mapping[str, Any]) -> Mapping[str, Any]:
    if values["yes"]:
        return values
    from offload.cli.confirmation import confirmed

    return confirmed(session, command, values)


def _with_texts(command: Command, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values, with the text of a file in the place of its path. Raises `NoSuchFile`, `InvalidParameters`."""
    names = [name for name, each in command.parameters.items() if each.about.is_file and values[name] is not None]
    return {**values, **{name: _text_of(values[name]) for name in names}}


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise NoSuchFile(path) from None
    except UnicodeDecodeError:
        raise InvalidParameters(f"{path} is not a text in UTF-8") from None


def _while_read(results: Iterator[Any]) -> Iterator[Any]:
    """Yield the results until the reader of the output has gone."""
    for result in results:
        yield result
        if not has_reader():
            return


def _function(path: str) -> Callable[..., Any]:
    module, _, name = _FUNCTIONS[path].rpartition(".")
    return getattr(importlib.import_module(f"offload.cli.{module}"), name)  # type: ignore[no-any-return]


def _listed(parameter: Parameter) -> ListedParameter:
    about = parameter.about
    if about.clean not in (None, without_main):
        raise ValueError(f"{parameter.name}: the front door knows only names of topics to clean")
    choices = tuple(each.value for each in parameter.kind) if issubclass(parameter.kind, Enum) else ()
    return ListedParameter(
        parameter.name,
        "choice" if choices else "path" if about.is_file else parameter.kind.__name__.lower(),
        about.help,
        parameter.options,
        default=None if parameter.default is ... else parameter.default,
        is_required=parameter.default is ...,
        is_topic=about.clean is without_main,
        metavar=about.metavar,
        shown_default=about.shown_default,
        least=about.least,
        choices=choices,
        names=about.names,
    )
