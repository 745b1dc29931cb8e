"""Recovery of a data directory from a bucket alone: every topic and branch as a replica, ready for a takeover.

    step                                            what a crash after it leaves
    0 the directory is empty, the remote has names  nothing
    1 the file RECOVERING, which names the remote   a directory that recovers only from that remote
    2 seglog.toml with that remote; the log, empty  the same
    3 a replica's handle for each live name         the same, with some of the names; a repetition adds the others
    4 RECOVERING is deleted                         the data directory

REBUILD-1  Recovery writes nothing to the remote; only a takeover does (`writable`).
    Bounds, configuration and history are in the volumes, and a replica reads them there. A topic gets its
    configuration when it is taken over (offload.replication.takeover).
REBUILD-2  If the directory holds anything else, recovery refuses it.
    If an earlier recovery of the same remote began there, this one continues it.
REBUILD-3  A name that cannot be recovered holds up no other name. The directory is complete only with all of them.
REBUILD-4  No remote tells what its writer had not offloaded. So each report ends with the seq and the time after which
    nothing is known.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import seglog
from catalog import Branches, Volumes
from catalog.errors import NoSuchBranch, NoSuchTopic
from catalog.format.control import full_name
from catalog.objects.object_store import ObjectStore
from offload.archive import Archive, attach
from offload.errors import directory_not_empty
from offload.moment import Moment
from offload.settings import Settings, TenantSettings, default_file, read_settings
from offload.wiring import check_remote_apart, open_store, source_of
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Missing
from seglog.files.clock import Clock
from seglog.files.file_system import Files
from seglog.values.config import NO_VARIABLES

MARKER = "RECOVERING"
_READ_BYTES = 65_536
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Recovered:
    """The remote's state of one topic or branch. Without records, `last_seq` and `last_time` are None.

    The tail after the seq and the time of the newest offloaded record was not shipped, so `tail` says `unknown`. The
    time is None if there was no record ever.
    """

    topic: str
    volume: str
    lsn: int
    head_seq: int
    records: int
    last_seq: int | None
    last_time: Moment | None
    is_writable: bool
    tail_after_seq: int
    tail_after_time: Moment | None
    tail: str = "unknown"


@dataclass(frozen=True, slots=True)
class NotRecovered:
    topic: str
    error: Exception


def _ignore(_done: int, _total: int) -> None:
    """Ignore the progress."""


@checked
def recover(
    directory: Path,
    url: str,
    *,
    only: str | None = None,
    writable: bool = False,
    store: ObjectStore | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
    variables: Mapping[str, str] = NO_VARIABLES,
    tenant: TenantSettings | None = None,
    on_progress: Callable[[int, int], None] = _ignore,
) -> Iterator[Recovered | NotRecovered]:
    """Yield each name when it is done. `only` is a topic, with its branches, or a branch.

    `writable` takes all of them over. `variables` is an environment that overrides settings, such as the encryption of
    what a takeover writes. `tenant` has the role for the remote, and becomes the section [tenant] of the new settings.
    `store` may replace the store that `url` names. If the iteration ends without a `NotRecovered`, the directory is
    complete. Otherwise, repeat the call. `on_progress` gets the number of names done, and of all.
    Raises `Conflict`, `Missing`, `NoSuchTopic`, `InvalidSetting`, and the errors of the store.
    """

    def work(archive: Archive, name: str) -> Recovered:
        return recovered(archive, name, writable=writable)

    yield from _each(directory, url, work, only, on_progress, variables, tenant, store=store, clock=clock, files=files)


def set_up(
    directory: Path,
    url: str,
    *,
    variables: Mapping[str, str] = NO_VARIABLES,
    tenant: TenantSettings | None = None,
    on_progress: Callable[[int, int], None] = _ignore,
) -> Iterator[str | NotRecovered]:
    """Do the same as `recover`, and yield names only. The call looks at no record. Raises as `recover` does."""

    def work(archive: Archive, name: str) -> str:
        archive.replication.sync(name)
        return name

    yield from _each(directory, url, work, None, on_progress, variables, tenant)


def prepare(
    directory: Path,
    url: str,
    only: str | None = None,
    *,
    store: ObjectStore | None = None,
    files: Files | None = None,
    variables: Mapping[str, str] = NO_VARIABLES,
    tenant: TenantSettings | None = None,
) -> tuple[list[str], Settings]:
    """Do steps 0 to 2. Return the names to recover, deleted ones included, and the settings of the directory.

    All that can be refused is refused before anything is written. Raises as `recover` does.
    """
    port = seglog.OsFiles() if files is None else files
    present = _found(port, directory, url)
    settings = settings_in(directory, variables, tenant)
    if store is None:
        check_remote_apart(url, directory)
        with closing(open_store(url, settings.cold, settings.offload, source_of(settings, url))) as opened:
            names = _names(opened)
    else:
        names = _names(store)
    if not names:
        raise _empty(url)
    chosen = [name for name in names if only in {None, name, name.partition("@")[0]}]
    if not chosen:
        raise NoSuchTopic(only or "", url)
    _begin(port, directory, url, present, tenant)
    return chosen, settings


def settings_in(
    directory: Path, variables: Mapping[str, str] = NO_VARIABLES, tenant: TenantSettings | None = None
) -> Settings:
    """Return the settings of a directory that may not exist yet. `tenant` wins over its section."""
    settings = read_settings(directory / seglog.SETTINGS_FILE, variables)
    return settings if tenant is None else settings.with_parts(tenant)


def complete(directory: Path, *, files: Files | None = None) -> None:
    """Do step 4."""
    port = seglog.OsFiles() if files is None else files
    port.unlink(directory / MARKER)
    port.sync_dir(directory)


def _each(
    directory: Path,
    url: str,
    work: Callable[[Archive, str], _T],
    only: str | None,
    on_progress: Callable[[int, int], None],
    variables: Mapping[str, str],
    tenant: TenantSettings | None,
    *,
    store: ObjectStore | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
) -> Iterator[_T | NotRecovered]:
    port = seglog.OsFiles() if files is None else files
    names, settings = prepare(directory, url, only, store=store, files=port, variables=variables, tenant=tenant)
    failed, is_recovered = False, False
    with (
        seglog.open(directory, settings=settings.log, clock=clock, files=port) as log,
        attach(log, url, store=store, settings=settings, clock=clock) as archive,
    ):
        for done, name in enumerate(names):
            on_progress(done, len(names))
            try:
                yield work(archive, name)
                is_recovered = True
            except (NoSuchTopic, NoSuchBranch):
                continue  # deleted meanwhile
            except seglog.SeglogError as error:
                failed = is_recovered = True
                yield NotRecovered(name, error)
    if not is_recovered:
        raise _empty(url) if only is None else NoSuchTopic(only, url)
    if not failed:
        complete(directory, files=port)


def recovered(archive: Archive, name: str, *, writable: bool = False) -> Recovered:
    """Do step 3 for one name, and return the state that readers see now. Raises the errors of `sync`."""
    archive.replication.sync(name)
    snapshot = archive.history.snapshot(name)
    records, last = archive.history.count(snapshot)
    if writable:
        archive.replication.take_over(name)
    return Recovered(
        topic=name,
        volume=str(snapshot.vid),
        lsn=archive.status.topic(name).lsn,
        head_seq=snapshot.bounds.head_seq,
        records=records,
        last_seq=last.seq if last else None,
        last_time=Moment(last.ts_ms) if last else None,
        is_writable=not archive.replication.is_replica(name),
        tail_after_seq=snapshot.bounds.head_seq,
        tail_after_time=Moment(snapshot.max_ts_ms) if snapshot.bounds.head_seq else None,
    )


def _names(store: ObjectStore) -> list[str]:
    return sorted(full_name(topic, branch) for topic, branch in Branches(Volumes(store)).names())


def _found(files: Files, directory: Path, url: str) -> set[str]:
    """Return the names in the directory, of which a half-written file of step 1 counts as nothing.

    Raises `Conflict` unless an earlier recovery of the same remote made them.
    """
    names = set(files.list_dir(directory)) - {f"{MARKER}.tmp"} if files.is_dir(directory) else set[str]()
    if names and (MARKER not in names or _read(files, directory / MARKER) != url):
        raise directory_not_empty(directory)
    return names


def _begin(files: Files, directory: Path, url: str, names: set[str], tenant: TenantSettings | None) -> None:
    """Do steps 1 and 2. `names` are those in the directory."""
    for path in reversed([directory, *directory.absolute().parents]):
        if not files.is_dir(path):
            files.make_dir(path)
            files.sync_dir(path.parent)
    if not names:
        seglog.replace_atomically(files, directory / MARKER, url.encode())
    if seglog.SETTINGS_FILE not in names:
        seglog.replace_atomically(files, directory / seglog.SETTINGS_FILE, default_file(url, tenant).encode())


def _read(files: Files, path: Path) -> str:
    fd = files.open(path, os.O_RDONLY)
    try:
        return files.pread(fd, _READ_BYTES, 0).decode(errors="replace")
    finally:
        files.close(fd)


def _empty(url: str) -> Missing:
    hint = "correct the URL, or begin a new remote there: `seglog init --remote URL`"
    return Missing(f"there is no topic at all in {url}", hint=hint)
