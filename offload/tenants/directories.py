"""The data directories below a root, each of a tenant with its name.

    ROOT/seglog.toml       the settings of the daemon
    ROOT/acme/             the data directory of the tenant acme
    ROOT/acme/tenant       its name, from its first opening on

OWNED-1  The entry of a tenant is a directory, and no link. A link would give one tenant's data to another one's token.
OWNED-2  Only the owner of the root may make, rename and remove its entries.
OWNED-3  A directory belongs to the tenant under whose name it opened first. Under another name it does not open.
"""

from __future__ import annotations

import stat
from pathlib import Path

from offload.errors import OffloadError
from seglog import SETTINGS_FILE
from seglog.base.errors import Misuse
from seglog.files.file_system import OsFiles, replace_atomically

OWNER_FILE = "tenant"
_META = "meta"


class UnsafeDirectory(Misuse, OffloadError):
    """A directory that may be exchanged, or that belongs to another tenant."""

    path: Path
    reason: str
    hint: str
    message = "{path} {reason}"


def data_directories(root: Path) -> dict[str, Path]:
    """Return the data directories below the root by their names. A directory that does not open is among them."""
    paths = (path for path in root.iterdir() if (path / _META).is_dir() or (path / SETTINGS_FILE).is_file())
    return {path.name: path for path in sorted(paths)}


def check_root(root: Path) -> None:
    """Raise `UnsafeDirectory` if others than its owner may write into the root (OWNED-2)."""
    if root.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        reason = "may be written by others, who could exchange the directories of its tenants"
        raise UnsafeDirectory(root, reason, hint=f"chmod go-w {root}")


def check_directory(directory: Path) -> None:
    """Raise `UnsafeDirectory` if the directory of a tenant is a link (OWNED-1)."""
    if directory.is_symlink():
        reason = "is a symbolic link, and may lead to another tenant's data"
        raise UnsafeDirectory(directory, reason, hint="move the directory itself below the root, or mount it there")


def claim(directory: Path, tenant: str) -> None:
    """Write the tenant's name into its directory, durably, unless it is there. Raises `UnsafeDirectory` (OWNED-3)."""
    path = directory / OWNER_FILE
    check_directory(path)
    try:
        owner = path.read_bytes().decode("ascii", "replace").strip()
    except FileNotFoundError:
        replace_atomically(OsFiles(), path, f"{tenant}\n".encode())
        return
    if owner != tenant:
        hint = f"give the directory its name again; if {tenant} may have all of its data, remove {path}"
        raise UnsafeDirectory(directory, f"belongs to the tenant {owner}", hint)
