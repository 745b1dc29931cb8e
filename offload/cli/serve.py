"""The command `seglog serve`."""

from __future__ import annotations

import typer

from offload.cli.session import session_of

__all__ = ["serve"]


def serve(context: typer.Context) -> None:
    """Hold this data directory, take records over HTTP, offload and release in the background, until SIGTERM.

    Other commands on the same directory go through the daemon by themselves. After SIGHUP the daemon
    reads the sections [serve], [offload] and [catalog] of seglog.toml again.
    Example: seglog -C /var/lib/seglog serve
    """
    session = session_of(context)
    session.serve(session.directory, session.settings(), remote=session.remote, debug=session.debug)
