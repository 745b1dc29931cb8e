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
STANDBY-4  If the remote is a proxy, and the directory follows few topics, a thread waits for the news of each, and the
    next look comes at once. Without news it comes after four intervals, and the threads wait until then. A look that
    failed, or that woke for nothing, is followed by a whole interval.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path

import seglog
from catalog import MAIN
from catalog.errors import BranchCollected, CatalogError, NoSuchBranch, NoSuchBucket, NoSuchTopic, StoreUnreachable
from catalog.objects.object_store import ObjectStore
from catalog.objects.store_timeout import one_command
from offload import recovery
from offload.archive import Archive, attach
from offload.errors import OtherRemote, directory_not_empty
from offload.moment import Moment
from offload.recovery import Recovered
from offload.replication.sync import Synced
from offload.services.replication import LOOKS_PER_SEARCH, MOST_WAITS, WAIT_S
from offload.settings import Backoff, TenantSettings, read_settings
from seglog.base.dataclasses import dataclass
from seglog.files.clock import SystemClock

_INTERVALS = 4
_STORE_IS_AWAY = (StoreUnreachable, NoSuchBucket)


@dataclass(frozen=True, slots=True)
class TopicFollowed:
    """A topic after a look that worked.

    `head_seq` and `last_time` are those of the newest record here. `lag_records` and `lag_s` say how far readers here
    were behind the remote until this look. `lag_s` is None if that is unknown. `commits` counts the commits that were
    new. `role` is replica, or writer for a topic that this directory writes and does not follow.
    """

    topic: str
    role: str
    lsn: int
    head_seq: int
    last_time: Moment | None
    commits: int
    lag_records: int
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class TopicUnfollowed:
    """A topic or branch that was deleted, renamed or promoted in the remote. This directory follows it no more."""

    topic: str


@dataclass(frozen=True, slots=True)
class LookFailed:
    """A look that failed, at one topic, or at all of them if `topic` is None.

    `failures` counts failures in a row. `lag_s` is the time since the last look that worked, None if none did.
    """

    topic: str | None
    error: str
    failures: int
    retry_in_s: float
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class Looked:
    """The end of a look. `topics` counts the topics and branches here, and `failed` those whose newest look failed."""

    topics: int
    failed: int


@dataclass(frozen=True, slots=True)
class Retry:
    """Failures in a row, and the time of the monotonic clock before which there is no new try."""

    failures: int = 0
    delay_s: float = 0.0
    due_s: float = 0.0

    def after_failure(self, backoff: Backoff) -> Retry:
        failures = self.failures + 1
        delay_s = backoff.delay_ms(failures, random.random()) / 1000
        return Retry(failures, delay_s, time.monotonic() + delay_s)


@dataclass(frozen=True, slots=True)
class _Place:
    """The newest record of a topic that readers here see.

    `looked_s` is the time of the monotonic clock at which that was the remote's newest; None if no look worked yet.
    """

    head_seq: int
    last_time: Moment | None = None
    looked_s: float | None = None


class Follower:
    """The looks at all topics of one remote. `error` is the last failure of the newest look, or None."""

    def __init__(
        self, log: seglog.Log, archive: Archive, backoff: Backoff, on_progress: Callable[[int, int], None]
    ) -> None:
        self.error: Exception | None = None
        self._log = log
        self._archive = archive
        self._backoff = backoff
        self._on_progress = on_progress
        self._names: list[str] = []
        self._listed: frozenset[str] = frozenset()
        self._places = {name: _Place(archive.status.topic(name).head_seq) for name in archive.replication.replicas()}
        self._retries: dict[str | None, Retry] = {}
        self._looks = 0
        self._has_looked = self._has_moved = False
        self._news = _News(archive)

    def away_s(self) -> float:
        """Return the time until the next look if the store is away, else 0."""
        return self._wait_s(None)

    def rest(self, interval_s: float) -> None:
        """Wait until the next look (STANDBY-4)."""
        names, is_idle = self._archive.replication.replicas(), self._news.was_heard and not self._has_moved
        if self._retries or is_idle or len(names) > MOST_WAITS or not self._archive.replication.can_wait:
            self._news.was_heard = False
            time.sleep(max(interval_s, self.away_s()))
        elif not self._news.hear(names, interval_s * _INTERVALS):
            self._looks += _INTERVALS - 1  # so that searches come as often

    def look(self) -> Iterator[Recovered | TopicFollowed | TopicUnfollowed | LookFailed | Looked]:
        """Look at each topic, unless its failures ask for a longer wait (STANDBY-1)."""
        self.error, self._has_moved = None, False
        try:
            self._search()
        except CatalogError as error:
            yield self._failed(None, error)
        else:
            yield from self._look_at_all()
        if not self._retries and (self._log.path / recovery.MARKER).exists():
            recovery.complete(self._log.path)
        yield Looked(len(self._places), sum(1 for name in self._retries if name is not None))

    def _search(self) -> None:
        """Look for new topics and branches, at some of the looks. After the first one, a proxy tells what it knows."""
        if self._looks == 0 or self._looks >= LOOKS_PER_SEARCH:
            names = self._archive.branches.remote_names(from_proxy=self._looks > 0)
            self._looks = 0
            self._listed |= {*names}
            failed = filter(None, self._retries)  # the proxy may not know a name whose first sync failed
            self._names = sorted({*names, *self._archive.replication.replicas(), *failed})
        self._looks += 1

    def _look_at_all(self) -> Iterator[Recovered | TopicFollowed | TopicUnfollowed | LookFailed]:
        try:
            for done, name in enumerate(list(self._names)):
                if not self._has_looked:
                    self._on_progress(done, len(self._names))
                if not self._wait_s(name):
                    yield from self._look_at(name)
        except CatalogError as error:
            self._looks = 0
            yield self._failed(None, error)
        else:
            self._retries.pop(None, None)
            self._has_looked = True

    def _look_at(self, name: str) -> Iterator[Recovered | TopicFollowed | TopicUnfollowed | LookFailed]:
        """Look at one topic. A name that was deleted in the remote is left out until the next search."""
        try:
            look = self._newest(name)
        except (NoSuchTopic, NoSuchBranch):
            self._names.remove(name)
            self._retries.pop(name, None)
            return
        except _STORE_IS_AWAY:
            raise
        except seglog.SeglogError as error:
            if isinstance(error, (OtherRemote, BranchCollected)) and self._is_gone(name):
                yield self._forgotten(name)
            else:
                yield self._failed(name, error)
            return
        self._retries.pop(name, None)
        yield look

    def _newest(self, name: str) -> Recovered | TopicFollowed:
        if self._log.has_topic(name):
            status = self._archive.status.topic(name)
            return TopicFollowed(name, "writer", status.lsn, status.head_seq, None, 0, 0, 0.0)
        place = self._places.get(name)
        if place is None:
            state = recovery.recovered(self._archive, name)
            self._places[name] = _Place(state.head_seq, state.tail_after_time, time.monotonic())
            return state
        synced = self._archive.replication.sync(name)
        self._has_moved |= synced.commits > 0
        followed = _followed(synced, place, self._now_at(synced, place))
        self._places[name] = _Place(followed.head_seq, followed.last_time, time.monotonic())
        return followed

    def _is_gone(self, name: str) -> bool:
        """Return whether the remote had the name and has it no more: it was deleted, renamed or promoted.

        A remote that never had the name is another one.
        """
        topic, _, branch = name.partition("@")
        if name not in self._listed:
            return False
        try:
            return (branch or MAIN) not in {ref.branch for ref in self._archive.branches.list(topic)}
        except NoSuchTopic:
            return True

    def _forgotten(self, name: str) -> TopicUnfollowed:
        """Follow the name no more. If it comes back, the next search finds it."""
        self._archive.delete_topic(name)
        self._names.remove(name)
        self._places.pop(name, None)
        self._retries.pop(name, None)
        return TopicUnfollowed(name)

    def _now_at(self, synced: Synced, place: _Place) -> tuple[int, Moment | None]:
        """Return the seq and the time of the newest record here."""
        if synced.brought is not None:
            return synced.brought.head_seq, Moment(synced.brought.last_ms)
        if place.last_time is not None and not synced.commits:
            return place.head_seq, place.last_time
        snapshot = self._archive.history.snapshot(synced.name)
        return snapshot.bounds.head_seq, Moment(snapshot.max_ts_ms) if snapshot.bounds.head_seq else None

    def _failed(self, name: str | None, error: Exception) -> LookFailed:
        self.error = error
        retry = self._retries[name] = self._retries.get(name, Retry()).after_failure(self._backoff)
        return LookFailed(name, str(error), retry.failures, retry.delay_s, self._lag_s(name))

    def _lag_s(self, name: str | None) -> float | None:
        """Return the time since the last look that worked, of one topic, or the longest of all."""
        looked = [place.looked_s for key, place in self._places.items() if name in (None, key)]
        times = [time_s for time_s in looked if time_s is not None]
        return time.monotonic() - min(times) if times else None

    def _wait_s(self, name: str | None) -> float:
        retry = self._retries.get(name)
        return 0.0 if retry is None else max(0.0, retry.due_s - time.monotonic())


class _News:
    """The waits for news of topics, each in a thread. `was_heard` is what the newest call of `hear` returned."""

    def __init__(self, archive: Archive) -> None:
        self.was_heard = False
        self._archive = archive
        self._lock = threading.Lock()
        self._waits: dict[str, threading.Thread] = {}
        self._end_s = 0.0  # of the monotonic clock, when the newest call of `hear` is over
        self._heard = threading.Event()

    def hear(self, names: list[str], most_s: float) -> bool:
        """Wait for news of one of the names, and for `most_s` at most. Return whether some came, or a wait failed."""
        with self._lock:
            self._end_s = time.monotonic() + most_s
            for name in names:
                if name not in self._waits or not self._waits[name].is_alive():
                    self._waits[name] = threading.Thread(target=self._wait, args=(name,), daemon=True)
                    self._waits[name].start()
        self.was_heard = self._heard.wait(most_s)
        self._heard.clear()
        return self.was_heard

    def _wait(self, name: str) -> None:
        """Wait again and again, until there is news, a wait fails, or nobody hears any more."""
        while True:
            wait_s, has_news = min(max(1, math.ceil(self._end_s - time.monotonic())), WAIT_S), None
            with suppress(seglog.SeglogError):  # the next look meets it, too, and tells
                has_news = self._archive.replication.await_news(name, wait_s)
            with self._lock:
                if has_news is False and time.monotonic() < self._end_s:
                    continue
                del self._waits[name]  # so that `hear` begins another
            if has_news is not False:
                self._heard.set()
            return


def _followed(synced: Synced, place: _Place, now_at: tuple[int, Moment | None]) -> TopicFollowed:
    """Return what a look found. `now_at` are the seq and the time of the newest record here."""
    head_seq, last_time = now_at
    return TopicFollowed(
        topic=synced.name,
        role="replica",
        lsn=synced.lsn,
        head_seq=head_seq,
        last_time=last_time,
        commits=synced.commits,
        lag_records=max(0, head_seq - place.head_seq),
        lag_s=_behind_s(synced, place) if synced.commits else 0.0,
    )


def _behind_s(synced: Synced, place: _Place) -> float | None:
    """Return the age of the first new commit, or, if it was not fetched, the time since the last look that worked."""
    first_ms = None if synced.brought is None else synced.brought.first_commit_ms
    if first_ms is not None:
        return max(0, SystemClock().now_ms() - first_ms) / 1000
    return None if place.looked_s is None else time.monotonic() - place.looked_s


_FIRST_BACKOFF = Backoff(1_000, 60_000)
"""The wait while the remote of a new directory cannot be reached. There are no settings yet."""


def _ignore(_done: int, _total: int) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """The options of `follow`. `variables` is the environment, which overrides settings. `tenant` has the role for the
    remote, and becomes the section [tenant] of a new directory.

    `wait` waits so many seconds; None also waits for the news of a proxy. `on_progress` gets the number of topics of
    the first look that are done, and of all.
    """

    once: bool = False
    interval_s: float = 5.0
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    tenant: TenantSettings | None = None
    wait: Callable[[float], None] | None = None
    on_progress: Callable[[int, int], None] = _ignore


def follow(
    directory: Path, url: str, options: FollowOptions, *, store: ObjectStore | None = None
) -> Iterator[Recovered | TopicFollowed | TopicUnfollowed | LookFailed | Looked]:
    """Make or continue a directory that follows the remote, and yield each topic at each look. A topic that is new here
    gives a `Recovered`.

    Raises `Conflict` and `Missing` before anything is written, and the errors of `seglog.open`.
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
            if options.wait is None:
                follower.rest(options.interval_s)
            else:
                options.wait(max(options.interval_s, follower.away_s()))


def made_for(directory: Path, url: str, variables: Mapping[str, str]) -> None:
    """Make a directory for a proxy of the remote, by steps 1 and 2, unless it is there. Raises as `follow` does."""
    if not _is_made(directory, url):
        _, settings = recovery.prepare(directory, url, variables=variables)
        seglog.open(directory, settings=settings.log).close()
        recovery.complete(directory)


def _is_made(directory: Path, url: str) -> bool:
    """Return whether the directory is complete and has this remote. Raises `Conflict` for another remote."""
    if not (directory / seglog.SETTINGS_FILE).exists() or (directory / recovery.MARKER).exists():
        return False
    own = read_settings(directory / seglog.SETTINGS_FILE).url
    if own is None or own.rstrip("/") != url.rstrip("/"):
        raise directory_not_empty(directory)
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
            (options.wait or time.sleep)(retry.delay_s)
        else:
            return
