"""The front door: it answers help, the version and completion by itself, and imports the rest for a command that runs.

It needs only the standard library, and little of that: `seglog --help` imports 20 modules. Exit codes: 0 done, 1
failed, 2 usage, 3 not found, 4 diverged or conflict, 5 corruption found, 130 interrupted, 143
terminated. For an error the command writes one line to stderr, with a hint what to do. With `--json` the line is a JSON
object. `--debug` adds the traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from offload.cli.parser import Request, UsageError, request_of
from offload.cli.shells import script
from offload.cli.stdio import end_at_once, exit_code, flush_output, raise_in_command, write_error, write_output
from offload.cli.top import COMPLETION
from seglog.base.errors import Misuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from offload.cli.session import Serve

_EXIT_USAGE = 2
_COMPLETE = "__complete"
LOCAL = frozenset({"demo", "doctor", "follow", "init", "inspect", "recover", "serve", "tenant/delete", "verify"})
"""The commands that work on files or a remote from this machine, and that no daemon runs."""


def run(words: list[str], variables: Mapping[str, str], serve: Serve) -> int:
    """Run a command line, and return the exit code. `serve` runs the daemon."""
    if words[:1] == [_COMPLETE]:
        return _complete(words[1:], variables)
    try:
        request = request_of(words, variables)
    except UsageError as error:
        return _refuse_words(error, as_json=_wants_json(words))
    if request.kind == "run" and request.path == COMPLETION.path:
        return _answer(script(str(request.values["shell"])))
    if request.kind == "run":
        return _run_command(request, serve)
    if request.kind == "version":
        from offload.operations.command_list import VERSION

        return _answer(f"seglog {VERSION}, Python {sys.version.split()[0]}\n")
    from offload.cli.help import help_text

    text = help_text(request.path, _columns(variables), is_full=bool(request.options["all"]))
    if request.kind == "help":
        return _answer(text)
    if request.options["as_json"]:
        return _refuse_words(UsageError("there is no command", request.path), as_json=True)
    write_error(text)
    return _EXIT_USAGE


def _complete(words: list[str], variables: Mapping[str, str]) -> int:
    """Print what may come next. Exit code 1 stands for the names of files."""
    from offload.cli.completion import candidates

    choices = candidates(words, variables)
    return 1 if choices is None else _answer("".join(f"{word}\t{text}\n" for word, text in choices))


def _run_command(request: Request, serve: Serve) -> int:
    try:
        _command(request, serve)
        flush_output()
    except KeyboardInterrupt as stop:
        end_at_once()
        return _stop(request, stop)
    except Exception as error:
        from offload.cli.execution import SIMILAR
        from offload.operations.result_json import problem

        if request.options["debug"]:
            import traceback

            traceback.print_exc()
        report = problem(error)
        report["message"] += "".join(
            f" ({note})" for note in getattr(error, "__notes__", ()) if note.startswith(SIMILAR)
        )
        return _refuse(report, as_json=bool(request.options["as_json"]))
    finally:
        end_at_once()
    return 0


def _stop(request: Request, stop: KeyboardInterrupt) -> int:
    """Say that a signal stopped the command, unless the command only reads, and return the exit code."""
    from offload.cli.stopped import hint_of

    line, code, as_json = str(stop), exit_code(stop), bool(request.options["as_json"])
    hint = "" if line else hint_of(request.path, request.values)
    if line and not as_json:
        write_error(f"{line}\n")
    elif line or hint:
        report = {"error": "Interrupted", "message": line or "interrupted", "hint": hint or None, "exit_code": code}
        _refuse(report, as_json=as_json)
    return code


def _command(request: Request, serve: Serve) -> None:
    from pathlib import Path

    from seglog.base.lazy import import_without

    import_without("dataclasses", "inspect")  # it makes docstrings for classes that have none
    if request.options["debug"]:
        from seglog.base.arguments import show_frames

        show_frames(True)

    from offload.cli.execution import run_command, understood_values
    from offload.cli.session import Session
    from offload.operations.command_list import COMMANDS

    options = request.options
    if options["daemon"] is not None and request.path in LOCAL:
        text = f"{COMMANDS[request.path].name} works on files of this machine, so no daemon runs it"
        raise Misuse(text, hint="leave out --daemon and SEGLOG_DAEMON, or run it on the daemon's machine")
    session = Session(
        Path(str(options["directory"] or ".")),
        None if options["remote"] is None else str(options["remote"]),
        bool(options["as_json"]),
        bool(options["debug"]),
        serve,
        is_plain=bool(options["plain"]),
        is_verbose=bool(options["verbose"]),
        no_pager=bool(options["no_pager"]),
        daemon_url=None if options["daemon"] is None else str(options["daemon"]),
        store_timeout_s=None if options["store_timeout"] is None else int(str(options["store_timeout"])),
        token_file=None if options["token_file"] is None else Path(str(options["token_file"])),
    )
    paths = [parameter.name for parameter in COMMANDS[request.path].parameters if parameter.kind == "path"]
    paths_given = {name: Path(str(request.values[name])) for name in paths if request.values[name] is not None}
    timed, notes = understood_values(
        COMMANDS[request.path].parameters, request.values, is_strict=bool(options["strict_time"])
    )
    if not session.as_json:
        write_error("".join(f"{note}\n" for note in notes))
    command = run_command(session, request.path, {**timed, **paths_given})
    raise_in_command()
    command()


def _answer(text: str) -> int:
    write_output(text)
    return 0


def _refuse_words(error: UsageError, *, as_json: bool) -> int:
    report = {"error": "UsageError", "message": str(error), "hint": error.hint, "exit_code": error.exit_code}
    return _refuse(report, as_json=as_json)


def _refuse(report: Mapping[str, Any], *, as_json: bool) -> int:
    """Print the report of an error, and return its exit code."""
    hint = report.get("hint")
    if as_json:
        import json

        write_error(json.dumps({"schema": 1, "kind": "error", **report, "hint": hint}) + "\n")
    else:
        line = f"seglog: {report['message']}" + (f". {hint[0].upper()}{hint[1:]}" if hint else "")
        write_error(" ".join(line.split()) + "\n")
    return int(report["exit_code"])


def _wants_json(words: list[str]) -> bool:
    """Return whether words that are no command ask for JSON."""
    return "--json" in words[: words.index("--") if "--" in words else None]


def _columns(variables: Mapping[str, str]) -> int:
    """Return the width of the terminal, or 80 if standard output is none."""
    columns = variables.get("COLUMNS", "")
    if columns.isdecimal():
        return int(columns)
    try:
        return os.get_terminal_size().columns or 80
    except OSError:
        return 80
