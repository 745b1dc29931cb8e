"""The command `seglog init`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.session import emit, session_of

__all__ = ["init"]


def init(
    context: typer.Context,
    remote: Annotated[
        str | None,
        typer.Option(help="Where sealed segments go: s3://bucket/prefix or file:///path.", show_default=False),
    ] = None,
) -> None:
    """Make a data directory and its seglog.toml.

    Nothing is sent to the remote yet; it is checked when something is offloaded.
    Example: seglog -C data init --remote s3://my-bucket/acme
    """
    import seglog
    from offload.errors import AlreadyInitialised
    from offload.settings_file import default_file
    from offload.wiring import check_remote_apart, open_store

    session = session_of(context)
    url = remote or session.remote
    if url:
        open_store(url).close()
        check_remote_apart(url, session.directory)
    settings = session.directory / seglog.SETTINGS_FILE
    if settings.exists():
        raise AlreadyInitialised(session.directory)
    with seglog.open(session.directory, settings=session.settings().log):
        seglog.replace_atomically(seglog.OsFiles(), settings, default_file(url).encode())
    where = session.directory.resolve()
    emit(
        session,
        {"directory": str(where), "remote": url},
        f"made {where}" + (f", remote {url}" if url else ", without a remote (add one in seglog.toml)"),
    )
