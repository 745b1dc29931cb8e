"""The `seglog` command as a process: the command line, with the daemon that `seglog serve` starts.

The command line and the daemon do not import each other. This module gives the one to the other. Ctrl-C ends the
process with exit code 130, and SIGTERM with 143, also while it imports.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from offload.settings import Settings

_YOUNG_OBJECTS = 100_000
"""The objects before the first search for cycles. With Python's own 700, the imports of a command cause a hundred."""


def main() -> None:
    code = 130
    try:
        from offload.cli.stdio import end_at_once

        end_at_once()
        import atexit
        import gc
        import os
        import sys

        from seglog.base.lazy import import_without

        import_without("urllib.parse", "ipaddress")  # of a host in brackets
        from offload.cli.command_line import run
        from offload.cli.stdio import accept_any_text, flush_output, open_closed_streams

        gc.set_threshold(_YOUNG_OBJECTS)
        if _search_more_often not in gc.callbacks:
            gc.callbacks.append(_search_more_often)
            atexit.register(gc.callbacks.remove, _search_more_often)  # at the end of Python it could import nothing
        atexit.register(gc.freeze)  # else Python looks for cycles in all objects once more at its end
        open_closed_streams()
        accept_any_text()
        code = run(sys.argv[1:], os.environ, _serve)
        flush_output()
    except KeyboardInterrupt:  # of the first imports, before the process ends at once
        pass
    raise SystemExit(code)


def _search_more_often(_phase: str, _told: object) -> None:
    """Search for cycles as a process does that runs long. A short command ends before the first search.

    It stays a callback: Python would skip the next one, of whatever program, if this one removed itself.
    """
    import gc

    gc.set_threshold(_YOUNG_OBJECTS // 100)


def _serve(directory: Path, settings: Settings, *, remote: str | None, debug: bool, tenants: bool = False) -> None:
    import gc
    import os

    try:
        from offload.daemon.logs import set_up_logs
        from offload.daemon.server import announce, run, run_tenants
    except ModuleNotFoundError as missing:
        from seglog.errors import NotInstalled

        if missing.name is None or missing.name.startswith("offload"):
            raise
        raise NotInstalled("seglog serve", missing.name, "daemon") from None
    from seglog.base.arguments import show_frames

    gc.set_threshold(_YOUNG_OBJECTS // 100)
    show_frames(True)  # its logs have the traceback of what nobody expects
    serve = settings.serve
    is_insecure = serve.insecure_behind_proxy and not serve.tls_certificate

    def ready(addresses: list[str], loop: str) -> None:
        announce(addresses, loop, is_insecure=is_insecure)

    set_up_logs(serve.log_format, debug=debug)
    if tenants:
        run_tenants(directory, settings, variables=os.environ, on_ready=ready)
        return
    run(directory, settings, remote=remote, variables=os.environ, on_ready=ready)
