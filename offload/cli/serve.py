"""The command `seglog serve`."""

from __future__ import annotations

import os

import typer

from offload.cli.session import session_of

__all__ = ["serve"]


def serve(context: typer.Context) -> None:
    """Hold this data directory, take records over HTTP, offload and release in the background, until SIGTERM.

    Other commands on the same directory go through the daemon by themselves. Settings: the sections [serve] and
    [offload] of seglog.toml, which SIGHUP takes anew. Example: seglog -C /var/lib/seglog serve
    """
    from offload.daemon.logs import set_up_logs
    from offload.daemon.server import announce, run
    from offload.settings import load_serve_settings
    from seglog import SETTINGS_FILE

    session = session_of(context)
    settings = load_serve_settings(session.directory / SETTINGS_FILE, os.environ)
    set_up_logs(settings.log_format, debug=session.debug)
    run(session.directory, remote=session.remote, variables=os.environ, on_ready=announce)
