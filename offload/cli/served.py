"""Commands that the daemon runs while it holds the data directory. Without a daemon they run in this process."""

from __future__ import annotations

import enum
from typing import Any

import typer
from typer.core import TyperCommand

from offload.cli.output import output
from offload.cli.session import session_of

__all__ = ["Served"]


class Served(TyperCommand):
    """A typer command that runs in the daemon if there is one. Use `app.command(cls=Served)`."""

    def invoke(self, ctx: Any) -> Any:
        session = session_of(ctx)
        daemon = session.daemon()
        if daemon is None:
            return super().invoke(ctx)
        path = f"{ctx.parent.info_name}/{ctx.info_name}" if ctx.parent.parent is not None else ctx.info_name
        parameters = {name: _plain(value) for name, value in ctx.params.items()}
        code = daemon.run(path, parameters, output(), as_json=session.as_json, remote=session.remote)
        if code:
            raise typer.Exit(code)
        return None


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value
