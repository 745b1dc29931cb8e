"""The check that a remote in a directory is apart from the data directory.

A remote within the data directory is lost together with it. If the data directory lies within the remote, the store
lists its files as objects. The check compares device and inode, so it sees through links and bind mounts.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from offload.errors import InvalidRemote

__all__ = ["check_remote_apart"]


def check_remote_apart(url: str, directory: Path) -> None:
    """Raise `InvalidRemote` if one lies in the other. A remote that is in no directory is apart."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return
    remote = Path(unquote(parts.path))
    if _is_in(remote, directory):
        raise InvalidRemote(url, f"it lies in the data directory {directory}, and would be lost together with it")
    if _is_in(directory, remote):
        raise InvalidRemote(url, f"the data directory {directory} lies in it: take a directory beside that")


def _is_in(path: Path, other: Path) -> bool:
    """Return whether `path` lies in `other`, or is the same. Neither needs to exist."""
    path, other = Path(os.path.realpath(path)), Path(os.path.realpath(other))
    for each in (path, *path.parents):
        if each == other:
            return True
        with suppress(OSError):
            if each.samefile(other):
                return True
    return False
