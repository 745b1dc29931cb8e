"""Whether a remote in a directory is apart from the data directory.

A remote within the data directory is lost together with it. A data directory within the remote is listed as if its
files were objects. Device and inode are compared, so links and bind mounts are seen through.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from offload.errors import InvalidRemote

__all__ = ["check_remote_apart"]


def check_remote_apart(url: str, directory: Path) -> None:
    """Raises `InvalidRemote`. A remote that is in no directory is apart."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return
    remote = Path(unquote(parts.path))
    if _is_in(remote, directory):
        raise InvalidRemote(url, f"it lies in the data directory {directory}, and would be lost together with it")
    if _is_in(directory, remote):
        raise InvalidRemote(url, f"the data directory {directory} lies in it: take a directory beside that")


def _is_in(path: Path, other: Path) -> bool:
    """Or is the same. Neither needs to be there."""
    path, other = Path(os.path.realpath(path)), Path(os.path.realpath(other))
    for each in (path, *path.parents):
        if each == other:
            return True
        with suppress(OSError):
            if each.samefile(other):
                return True
    return False
