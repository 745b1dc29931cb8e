"""How many requests the store gets for many replicas of one topic, at the store itself and behind a proxy.

A replica is `seglog follow` without its pauses: a directory of its own that looks at the topic, and each twelfth time
for new names. All replicas run in this process. The proxy is a daemon of its own. It and the replicas at the store
have a server each over the same objects, so that the requests of both are counted apart.
"""

from __future__ import annotations

import time
import urllib.request
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import offload
import seglog
from benchmarks import daemon
from benchmarks.cold_store import BUCKET, TOPIC, at_endpoint
from benchmarks.range_server import serving, taken
from benchmarks.report import Row, alone, compare
from benchmarks.runner import Rounds
from catalog.format.keys import commit_key
from catalog.objects.object_store import ObjectStore
from offload.archive import Archive
from offload.operations.standby import FollowOptions, Looked, LookFailed, follow
from offload.wiring import open_store

__all__ = ["Crowd", "rows"]

_HOUR_LOOKS = 720  # one in 5 s, the default of `catalog.sync_interval_s` and of `seglog follow`
_HOUR_COMMITS = 1_000
_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """`idle_looks` and `busy_looks` are the looks of each replica that are counted. `behind` are the commits of which
    a replica hears at once. The proxy looks every `look_s`, which leaves the replicas time for a look each.
    """

    replicas: int = 100
    idle_looks: int = 24
    busy_looks: int = 36
    behind: int = 1_000
    look_s: int = 2


class _Replica:
    """One `seglog follow`. Its requests are those of `store`."""

    def __init__(self, directory: Path, store: ObjectStore) -> None:
        self._context = copy_context()
        looks = follow(directory, store.url, FollowOptions(wait=lambda _: None), store=store)
        self._looks = cast("Generator[object]", looks)

    def look(self) -> None:
        found = self._context.run(next, self._looks)
        while not isinstance(found, Looked):
            assert not isinstance(found, LookFailed), found.error
            found = self._context.run(next, self._looks)

    def close(self) -> None:
        self._context.run(self._looks.close)


class _Remote:
    """A topic in a directory, which a writer here fills."""

    def __init__(self, log: seglog.Log, archive: Archive) -> None:
        self._log = log
        self._archive = archive
        self.commits = 0

    def commit(self, count: int) -> None:
        for _ in range(count):
            self._archive.open_for_append(TOPIC).append([b"one record of a commit"])
            self._log.topic(TOPIC).seal()
            self._archive.offload(TOPIC)
            self.commits += 1

    @property
    def lsn(self) -> int:
        return self._archive.history.snapshot(TOPIC).lsn

    def sizes(self, directory: Path, after: int) -> int:
        """Return the bytes of the commits after an LSN."""
        tip = self._archive.history.snapshot(TOPIC)
        return sum((directory / commit_key(tip.vid, lsn)).stat().st_size for lsn in range(after + 1, tip.lsn + 1))


class _Looks:
    """The looks of a proxy, each of which begins with a GET of the ref, and its requests."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self.requests: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return self.requests["GET refs"]

    def begin(self) -> None:
        self.await_next()
        self.requests.clear()

    def await_next(self) -> None:
        """Wait until the next look has ended: a GET of the ref, and then a quiet moment."""
        before, end_s = self.count, time.monotonic() + _LIMIT_S
        while time.monotonic() < end_s:
            time.sleep(0.1)
            came = taken(self._origin).requests
            self.requests += came
            if not came and self.count > before:
                return
        raise RuntimeError("the proxy does not look at its remote")


def rows(place: Path, crowd: Crowd) -> list[Row]:
    with ExitStack() as stack:
        remote = stack.enter_context(_remote(place))
        remote.commit(1)
        origins = [stack.enter_context(serving(place / "remote")) for _ in range(2)]
        with at_endpoint(origins[0]):
            direct = stack.enter_context(closing(open_store(f"s3://{BUCKET}")))
        with at_endpoint(origins[1]):
            given = {"CATALOG_SYNC_INTERVAL_S": str(crowd.look_s), "SERVE_CHECK_INTERVAL_MS": "100"}
            served = stack.enter_context(daemon.running(place / "proxy", proxy=f"s3://{BUCKET}", **given))
        through = stack.enter_context(closing(open_store(f"http://127.0.0.1:{served.port}")))
        _Looks(origins[1]).await_next()
        names = [*map(str, range(crowd.replicas)), "late"]
        *at_store, late_at_store = [_replica(stack, place / f"store-{name}", direct) for name in names]
        *at_proxy, late_at_proxy = [_replica(stack, place / f"proxy-{name}", through) for name in names]
        lsn = remote.lsn
        found = _idle(crowd, origins, at_store, at_proxy) + _busy(crowd, remote, origins, at_store, at_proxy)
        remote.commit(crowd.behind - (remote.lsn - lsn))
        looks = _Looks(origins[1])
        looks.await_next()
        looks.await_next()
        body, size = _get(served.port, f"/topics/{TOPIC}/forward?since={lsn}"), remote.sizes(place / "remote", lsn)
        taken(origins[0])
        late_at_store.look()
        before = _answers(served.port)
        late_at_proxy.look()
        own = _answers(served.port) - before
        label = f"a replica {crowd.behind:,} commits behind"
        return [
            *found,
            *_beside(label, own, taken(origins[0]).requests.total()),
            alone(f"{label}, at a proxy", "requests", own, at_most=1),
            alone(f"{label}, bytes of its answer / of the commits", "x", len(body) / size, at_most=0.8),
        ]


@contextmanager
def _remote(place: Path) -> Iterator[_Remote]:
    with (
        seglog.open(place / "writer") as log,
        offload.attach(log, (place / "remote").as_uri()) as archive,
    ):
        yield _Remote(log, archive)


def _replica(stack: ExitStack, directory: Path, store: ObjectStore) -> _Replica:
    """Return a replica after its first look, which copies what there is."""
    replica = stack.enter_context(closing(_Replica(directory, store)))
    replica.look()
    return replica


def _answers(port: int) -> int:
    """Return how many requests the daemon answered, without those for its metrics."""
    lines = _get(port, "/metrics").decode().splitlines()
    found = [line for line in lines if line.startswith("seglog_http_requests_total{") and '"/metrics"' not in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in found)


def _get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        body: bytes = answer.read()
        return body


def _idle(crowd: Crowd, origins: Sequence[str], at_store: list[_Replica], at_proxy: list[_Replica]) -> list[Row]:
    taken(origins[0])
    for _ in range(crowd.idle_looks):
        for replica in at_store:
            replica.look()
    of_store = taken(origins[0]).requests.total() / crowd.idle_looks
    looks = _Looks(origins[1])
    looks.begin()
    rounds = 0
    while looks.count < crowd.idle_looks:
        for replica in at_proxy:
            replica.look()
        rounds += 1
        looks.await_next()
    return _share("an idle hour", crowd, looks.requests.total() / looks.count, of_store, 1.1)


def _busy(
    crowd: Crowd, remote: _Remote, origins: Sequence[str], at_store: list[_Replica], at_proxy: list[_Replica]
) -> list[Row]:
    def commit(begin: int, looks: int) -> None:
        due = looks * _HOUR_COMMITS // _HOUR_LOOKS
        remote.commit(max(0, begin + due - remote.commits))

    taken(origins[0])
    begin = remote.commits
    for number in range(1, crowd.busy_looks + 1):
        commit(begin, number)
        for replica in at_store:
            replica.look()
    of_store = taken(origins[0]).requests.total() / crowd.busy_looks
    looks = _Looks(origins[1])
    for replica in at_proxy:  # they take in what came since their last look
        replica.look()
    looks.begin()
    begin = remote.commits
    while looks.count < crowd.busy_looks:
        commit(begin, looks.count + 1)
        for replica in at_proxy:
            replica.look()
        looks.await_next()
    return _share("an hour of 1,000 commits", crowd, looks.requests.total() / looks.count, of_store, 1.5)


def _share(what: str, crowd: Crowd, of_proxy: float, of_store: float, at_most: float) -> list[Row]:
    """Return the requests of an hour, from those of one look."""
    label = f"{what}, {crowd.replicas} replicas"
    return [
        *_beside(label, of_proxy * _HOUR_LOOKS, of_store * _HOUR_LOOKS),
        alone(f"{label}, share", "%", 100 * of_proxy / of_store, at_most=at_most),
    ]


def _beside(what: str, ours: float, theirs: float) -> list[Row]:
    """Return the row of a count beside that of replicas at the store itself."""
    rounds = Rounds({"seglog": [{"requests": ours}], "no proxy": [{"requests": theirs}]})
    return compare(rounds, what, "requests", "requests", "no proxy", more_is_better=False)
