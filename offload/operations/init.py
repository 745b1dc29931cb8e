"""Make a data directory, alone or from a remote that has topics: `seglog init`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import seglog
from offload.errors import OffloadError
from offload.operations.command import Tell
from offload.operations.results import OPTIONAL
from offload.settings import TenantSettings, default_file
from offload.wiring import check_remote_apart, open_store
from seglog.base.errors import Conflict

__all__ = ["AlreadyInitialised", "DirectoryMade", "init", "init_from"]


class AlreadyInitialised(Conflict, OffloadError):
    path: Path
    message = "{path} is a seglog data directory already; nothing was changed"
    hint = "edit its seglog.toml to change settings"


@dataclass(frozen=True, slots=True)
class DirectoryMade:
    """A new data directory. If it was made from a remote, `topics` are its topics and branches."""

    directory: str
    remote: str | None
    topics: tuple[str, ...] | None = field(default=None, metadata=OPTIONAL)


def init(
    directory: Path, url: str | None, settings: Callable[[], seglog.LogSettings], tenant: TenantSettings | None = None
) -> DirectoryMade:
    """Make a data directory and its seglog.toml. `settings` reads the settings of the new log.

    `tenant` becomes the section [tenant].

    Raises `AlreadyInitialised`, `InvalidRemote`, and what `settings` raises.
    """
    if url:
        open_store(url).close()
        check_remote_apart(url, directory)
    path = directory / seglog.SETTINGS_FILE
    if path.exists():
        raise AlreadyInitialised(directory)
    with seglog.open(directory, settings=settings()):
        seglog.replace_atomically(seglog.OsFiles(), path, default_file(url, tenant).encode())
    return DirectoryMade(str(directory.resolve()), url)


def init_from(
    directory: Path, url: str, tell: Tell, variables: Mapping[str, str], tenant: TenantSettings | None = None
) -> DirectoryMade:
    """Make a data directory from a remote: its topics and branches with their configuration, each as a replica.

    `variables` is the environment, which overrides settings. `tenant` has the role for the remote, and becomes the
    section [tenant].

    Raises `DirectoryNotEmpty` and `RemoteEmpty` before anything is written. After another error, the caller repeats
    the call.
    """
    from offload import recovery

    def on_progress(done: int, total: int) -> None:
        tell("init", total, done, "topics")

    topics: list[str] = []
    failed: Exception | None = None
    for outcome in recovery.set_up(directory, url, variables=variables, tenant=tenant, on_progress=on_progress):
        if isinstance(outcome, recovery.NotRecovered):
            failed = outcome.error
        else:
            topics.append(outcome)
    if failed is not None:
        raise failed
    return DirectoryMade(str(directory.resolve()), url, tuple(topics))
