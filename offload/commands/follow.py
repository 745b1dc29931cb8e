"""A data directory that follows a whole remote: `seglog follow`.

    step                                                what an interrupt or a crash after it leaves
    1 the remote has topics, and the directory is       nothing
      empty or was made from this remote
    2 a new directory gets its settings and its log     a directory that `follow` continues (offload.recovery)
      (offload.recovery, steps 1 and 2)
    3 a look: each topic and branch moves to the        the same; a reader sees a commit whole or not at all
      newest commit of the remote
    4 a wait, then step 3                               the same

STANDBY-1  No failure is silent, and none ends the command: it is a result, and the next look comes after a back-off. A
    store that does not answer stops the look. Another failure of a topic holds up no other topic.
STANDBY-2  A topic that this directory writes stays as it is: to push is not to follow.
STANDBY-3  With `once` there is one look, and its last failure is the error of the command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import seglog
from catalog.errors import StoreUnreachable
from catalog.objects.base import ObjectStore
from catalog.objects.patience import one_command
from offload import recovery
from offload.archive import attach
from offload.backoff import Backoff
from offload.commands.follower import Follower, Looked, LookFailed, Retry, TopicFollowed, TopicUnfollowed
from offload.errors import DirectoryNotEmpty
from offload.recovery import Recovered
from offload.settings import TenantSettings
from offload.settings_file import read_settings

__all__ = ["FollowOptions", "follow"]

_FIRST_BACKOFF = Backoff(1_000, 60_000)
"""The wait while the remote of a new directory cannot be reached. There are no settings yet."""


def _ignore(_done: int, _total: int) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """The options of `follow`. `variables` is the environment, which overrides settings. `tenant` has the role for the
    remote, and becomes the section [tenant] of a new directory.

    `wait` waits so many seconds. `on_progress` gets the number of topics of the first look that are done, and of all.
    """

    once: bool = False
    interval_s: float = 5.0
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    tenant: TenantSettings | None = None
    wait: Callable[[float], None] = time.sleep
    on_progress: Callable[[int, int], None] = _ignore


def follow(
    directory: Path, url: str, options: FollowOptions, *, store: ObjectStore | None = None
) -> Iterator[Recovered | TopicFollowed | TopicUnfollowed | LookFailed | Looked]:
    """Make or continue a directory that follows the remote, and yield each topic at each look. A topic that is new here
    gives a `Recovered`.

    Raises `DirectoryNotEmpty` and `RemoteEmpty` before anything is written, and the errors of `seglog.open`.
    """
    if not _is_made(directory, url):
        yield from _prepared(directory, url, options, store)
    settings = recovery.settings_in(directory, options.variables, options.tenant)
    backoff = Backoff(settings.offload.retry_min_s * 1000, settings.offload.retry_max_s * 1000)
    with (
        seglog.open(directory, settings=settings.log) as log,
        attach(log, url, store=store, settings=settings) as archive,
    ):
        follower = Follower(log, archive, backoff, options.on_progress)
        while True:
            with one_command():  # each look has its own time: a store that was away may be back
                yield from follower.look()
            if options.once:
                if follower.error is not None:
                    raise follower.error
                return
            options.wait(max(options.interval_s, follower.away_s()))


def _is_made(directory: Path, url: str) -> bool:
    """Return whether the directory is complete and has this remote. Raises `DirectoryNotEmpty` for another remote."""
    if not (directory / seglog.SETTINGS_FILE).exists() or (directory / recovery.MARKER).exists():
        return False
    own = read_settings(directory / seglog.SETTINGS_FILE).url
    if own is None or own.rstrip("/") != url.rstrip("/"):
        raise DirectoryNotEmpty(directory)
    return True


def _prepared(directory: Path, url: str, options: FollowOptions, store: ObjectStore | None) -> Iterator[LookFailed]:
    """Do steps 1 and 2. While the store cannot be reached, yield the failure and try again."""
    retry = Retry()
    while True:
        try:
            recovery.prepare(directory, url, store=store, variables=options.variables, tenant=options.tenant)
        except StoreUnreachable as error:
            if options.once:
                raise
            retry = retry.after_failure(_FIRST_BACKOFF)
            yield LookFailed(None, str(error), retry.failures, retry.delay_s, None)
            options.wait(retry.delay_s)
        else:
            return
