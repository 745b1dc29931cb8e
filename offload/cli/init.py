"""The command `seglog init`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.run import show
from offload.cli.session import session_of

__all__ = ["init"]


def init(
    context: typer.Context,
    remote: Annotated[
        str | None,
        typer.Option(help="Where sealed segments go: s3://bucket/prefix or file:///path.", show_default=False),
    ] = None,
) -> None:
    """Make a data directory and its seglog.toml.

    The command sends nothing to the remote. The first offload checks the remote.
    Example: seglog -C data init --remote s3://my-bucket/acme
    """
    from offload.commands import init as use

    session = session_of(context)
    made = use.init(session.directory, remote or session.remote, lambda: session.settings().log)
    place = f"remote {made.remote}" if made.remote else "without a remote (add one in seglog.toml)"
    show(context, made, f"made {made.directory}, {place}")
