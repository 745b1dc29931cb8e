"""Make a data directory: `seglog init`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import seglog
from offload.errors import AlreadyInitialised
from offload.settings_file import default_file
from offload.wiring import check_remote_apart, open_store

__all__ = ["DirectoryMade", "init"]


@dataclass(frozen=True, slots=True)
class DirectoryMade:
    directory: str
    remote: str | None


def init(directory: Path, url: str | None, settings: Callable[[], seglog.LogSettings]) -> DirectoryMade:
    """Make a data directory and its seglog.toml. `settings` reads the settings of the new log.

    Raises `AlreadyInitialised`, `InvalidRemote`, and what `settings` raises.
    """
    if url:
        open_store(url).close()
        check_remote_apart(url, directory)
    path = directory / seglog.SETTINGS_FILE
    if path.exists():
        raise AlreadyInitialised(directory)
    with seglog.open(directory, settings=settings()):
        seglog.replace_atomically(seglog.OsFiles(), path, default_file(url).encode())
    return DirectoryMade(str(directory.resolve()), url)
