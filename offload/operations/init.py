"""Make a data directory, alone or from a remote that has topics: `seglog init`."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import field
from pathlib import Path

import seglog
from catalog.format.keys import named_by, refs_prefix
from catalog.objects.object_store import first_valid_key
from offload.operations.command import Tell
from offload.operations.result_json import OPTIONAL
from offload.settings import Settings, TenantSettings, default_file
from offload.wiring import check_remote_apart, open_store, source_of
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Conflict


class RemoteState(enum.StrEnum):
    """What `init` found in the remote."""

    EMPTY = "empty"
    HAS_TOPICS = "has topics"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class DirectoryMade:
    """A new data directory. If it was made from a remote, `topics` are its topics and branches.

    Otherwise `remote_state` says what the remote has, and `detail` is the name of a topic, or why there was no check.
    """

    directory: str
    remote: str | None
    topics: tuple[str, ...] | None = field(default=None, metadata=OPTIONAL)
    remote_state: RemoteState | None = field(default=None, metadata=OPTIONAL)
    detail: str | None = field(default=None, metadata=OPTIONAL)


def init(
    directory: Path, url: str | None, settings: Callable[[], Settings], tenant: TenantSettings | None = None
) -> DirectoryMade:
    """Make a data directory and its seglog.toml. `settings` reads the settings of the new log, and of its remote.

    Before that, one LIST tries the remote. The directory is made whatever the remote answers. `tenant` becomes the
    section [tenant].

    Raises `Conflict`, `InvalidRemote`, and what `settings` raises.
    """
    if url:
        open_store(url).close()
        check_remote_apart(url, directory)
    path = directory / seglog.SETTINGS_FILE
    if path.exists():
        text = f"{directory} is a seglog data directory already; nothing was changed"
        raise Conflict(text, hint="edit its seglog.toml to change settings")
    given = settings()
    log_settings = given.log
    state, detail = _tried(url, given if tenant is None else given.with_parts(tenant)) if url else (None, None)
    with seglog.open(directory, settings=log_settings):
        seglog.replace_atomically(seglog.OsFiles(), path, default_file(url, tenant).encode())
    return DirectoryMade(str(directory.resolve()), url, remote_state=state, detail=detail)


def _tried(url: str, settings: Settings) -> tuple[RemoteState, str | None]:
    """Return what the remote has, and the name of a topic, or why nothing is known."""
    try:
        source = source_of(settings, url)
        with closing(open_store(url, settings.cold, settings.offload, source)) as store:
            name = first_valid_key(store, refs_prefix(), named_by)
    except (seglog.SeglogError, OSError) as error:
        return RemoteState.NOT_CHECKED, "; ".join(filter(None, [str(error), getattr(error, "hint", None)]))
    return (RemoteState.HAS_TOPICS, name[0]) if name else (RemoteState.EMPTY, None)


def init_from(
    directory: Path, url: str, tell: Tell, variables: Mapping[str, str], tenant: TenantSettings | None = None
) -> DirectoryMade:
    """Make a data directory from a remote: its topics and branches with their configuration, each as a replica.

    `variables` is the environment, which overrides settings. `tenant` has the role for the remote, and becomes the
    section [tenant].

    Raises `Conflict` and `Missing` before anything is written. After another error, the caller repeats
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
