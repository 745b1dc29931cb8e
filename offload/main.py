"""The `seglog` command as a process: the command line, with the daemon that `seglog serve` starts.

The command line and the daemon do not import each other. This module gives the one to the other.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from offload.cli.app import run
from offload.cli.streams import flush_output, open_closed_streams

if TYPE_CHECKING:
    from offload.settings_file import Settings

__all__ = ["main"]


def main() -> None:
    open_closed_streams()
    try:
        run(_serve)
    finally:
        flush_output()


def _serve(directory: Path, settings: Settings, *, remote: str | None, debug: bool) -> None:
    from offload.daemon.logs import set_up_logs
    from offload.daemon.server import announce, run

    set_up_logs(settings.serve.log_format, debug=debug)
    run(directory, settings, remote=remote, variables=os.environ, on_ready=announce)
