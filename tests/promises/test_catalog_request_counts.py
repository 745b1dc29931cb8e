"""The second table of docs/requests.md is true: the requests that each operation of the catalog makes."""

from __future__ import annotations

from collections.abc import Callable

from catalog import MAIN as MAIN_BRANCH
from catalog import Branches, ForkPoint, Volumes, encode_commit, make_checkpoint
from catalog.gc.collector import Collector
from catalog.gc.policy import GcPolicy
from catalog.objects.memory import MemoryStore
from catalog.refs.name_undo import undo
from catalog.refs.state_names import Pins, Tags
from catalog.timeline import Seq, Time, resolve
from catalog.updates import pull
from tests.catalog.samples import START_MS, HistoryMaker, ts_of
from tests.faults.store import CountingStore
from tests.worlds.documented import documented

COMMITS, CHECKPOINT = 100, 64
NOW_MS = ts_of(COMMITS * 10) + 1


def test_every_operation_of_the_catalog_makes_the_requests_that_are_documented() -> None:
    store = CountingStore(MemoryStore())
    vid = Branches(Volumes(store)).create("t", MAIN_BRANCH, now_ms=START_MS)
    history = HistoryMaker(vid)
    for number in range(COMMITS + 1):
        history.offload((number * 10 + 1, number * 10 + 10))
    *bodies, last = [encode_commit(stored.commit)[0] for stored in history.stored]
    volumes = Volumes(store)
    for lsn, body in enumerate(bodies, 1):
        volumes.publish(vid, lsn, body)
    make_checkpoint(volumes, vid, CHECKPOINT, now_ms=START_MS)
    found: dict[str, int] = {}

    def count(operation: str, act: Callable[[], object]) -> None:
        store.counts.clear()
        act()
        found[operation] = store.counts.total()

    def fresh() -> Volumes:
        return Volumes(store)

    def asks_no_index(*_: object) -> int:
        raise AssertionError("the times of segments tell")

    point, behind = ForkPoint(vid, 80, 795), history.stored[9]
    count("newest LSN", lambda: fresh().newest_lsn(vid))
    count("snapshot, 36 commits after a checkpoint", lambda: fresh().snapshot(vid))
    volumes.snapshot(vid)
    count("snapshot without news", lambda: volumes.snapshot(vid))
    count("snapshot of an older LSN, 16 commits after a checkpoint", lambda: fresh().snapshot(vid, 80))
    count("history, to look up an LSN or `head~3`", lambda: fresh().history(vid).nth(3))
    count("a time to its LSN", lambda: resolve(Time(ts_of(705)), fresh().history(vid), lambda *_: 705))
    count("a seq to its LSN", lambda: resolve(Seq(705), fresh().history(vid), asks_no_index))
    count("commit", lambda: volumes.publish(vid, COMMITS + 1, last))
    count("checkpoint", lambda: make_checkpoint(volumes, vid, COMMITS, now_ms=NOW_MS))
    count(
        "replica 91 commits behind, 1 commit after a checkpoint",
        lambda: pull(fresh(), vid, 10, behind.hash, each=False),
    )
    count("branch", lambda: Branches(volumes).create("t", "half", point, now_ms=NOW_MS))
    count("list of branches, 2", lambda: Branches(volumes).branches("t"))
    both = Branches(volumes).branches("t")
    count("how far 2 branches went", lambda: Branches(volumes).distances(both))
    count("branch renamed", lambda: Branches(volumes).rename("t", "half", "part", now_ms=NOW_MS))
    count("branch deleted", lambda: Branches(volumes).delete("t", "part", now_ms=NOW_MS))
    count("branch undeleted", lambda: Branches(volumes).undelete("t", "part", now_ms=NOW_MS))
    count("undo", lambda: undo(volumes, None, writer_id="test", now_ms=NOW_MS))
    count("tag", lambda: Tags(volumes).create("t", "v1", point, branch=MAIN_BRANCH, now_ms=NOW_MS))
    count("tag looked up", lambda: Tags(volumes).get("t", "v1"))
    count("lease", lambda: Pins(volumes).hold(point, "test", ttl_ms=60_000, now_ms=NOW_MS))
    collector = Collector(store, GcPolicy(300, 0), clock=lambda: NOW_MS, writer_id="test")
    count("GC of 2 volumes with 102 commits, dry", lambda: collector.run(dry_run=True))
    count("GC that makes a plan of it", collector.run)
    count("GC that carries the plan out", collector.run)
    assert found == documented(1)
