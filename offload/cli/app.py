"""The command line: the global options, the list of commands, and the report of errors.

Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 diverged or conflict, 5 corruption found. For an error the command
writes one line to stderr, with a hint what to do. `--debug` adds the traceback.
"""

from __future__ import annotations

import functools
import platform
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from offload.cli.parser import typer_command
from offload.cli.session import Serve, Session
from offload.cli.table import GROUPS, listed_commands
from offload.commands.results import problem

__all__ = ["app", "run"]

_EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="seglog",
    help="A durable local log that keeps its whole history in object storage.",
    epilog=(
        "Start: `seglog init --remote file:///tmp/archive`, `seglog append notes README.md`, `seglog read notes`. "
        "TOPIC@BRANCH names a branch wherever a topic can be named. "
        "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 diverged or conflict, 5 corruption found."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"seglog {version('seglog')}, Python {platform.python_version()}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Option("-C", "--dir", envvar="SEGLOG_DIR", help="The data directory.", show_default="here")
    ] = Path(),
    remote: Annotated[
        str | None,
        typer.Option(
            envvar="SEGLOG_REMOTE",
            help="s3://bucket/prefix or file:///path, instead of the one in seglog.toml.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Results as JSON, one object a line.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    _: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version.")] = False,
) -> None:
    context.obj = Session(directory, remote, as_json, debug, context.obj)


def _add_commands() -> None:
    groups = {name: typer.Typer(help=text, no_args_is_help=True) for name, text in GROUPS.items()}
    for command in listed_commands():
        group, _, name = command.path.rpartition("/")
        groups.get(group, app).command(name)(typer_command(command))
    for name, group_app in groups.items():
        app.add_typer(group_app, name=name)


_add_commands()


@functools.cache
def _command() -> Callable[..., object]:
    return get_command(app)


def run(serve: Serve) -> None:
    """Run the app, and turn an error into one line on stderr and an exit code. `serve` runs the daemon."""
    debug = "--debug" in sys.argv
    try:
        _command()(obj=serve)
    except KeyboardInterrupt:
        sys.exit(_EXIT_INTERRUPTED)
    except Exception as error:
        if debug:
            traceback.print_exc()
        said = problem(error)
        sys.stderr.write(_one_line(said["message"], said.get("hint")) + "\n")
        sys.exit(said["exit_code"])


def _one_line(message: str, hint: str | None) -> str:
    line = f"seglog: {message}" + (f". {hint[0].upper()}{hint[1:]}" if hint else "")
    return " ".join(line.split())
