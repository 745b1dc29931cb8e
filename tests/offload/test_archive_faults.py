"""Test a store that fails at any request of an offload, before or after its effect.

The next offload completes the job.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import offload
import seglog
from catalog import CommitKind, Vid
from catalog.errors import CatalogError, KeyChanged
from catalog.format.control import CheckpointSet
from catalog.format.keys import checkpoints_key
from catalog.format.small_objects import encode_checkpoint_set
from catalog.gc.scrub import Scrub
from catalog.objects.memory import MemoryStore
from offload import Archive
from offload.settings import CatalogSettings
from seglog import Log, LogSettings
from tests.faults.offloads import SMALL_BLOCKS
from tests.faults.store import CountingStore, Fault, FaultyStore, WrappedStore, lost, unreachable
from tests.offload.replicas import opened, ship, values

SETTINGS = LogSettings(max_record_bytes=24 << 10, wal_file_bytes=1 << 20)
VALUES = [b"%03d " % number + bytes(21_000) for number in range(10)]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a log with two blocks' worth of sealed records, and a later delete."""
    path = tmp_path_factory.mktemp("template") / "data"
    with seglog.open(path, settings=SETTINGS) as log:
        log.create_topic("t", seglog.TopicConfig(keep_history=True))
        log.topic("t").append(VALUES)
        log.topic("t").seal()
        log.topic("t").delete(before=3)
    return path


def _copied(template: Path, path: Path) -> Log:
    import shutil

    shutil.copytree(template, path)
    return seglog.open(path, settings=SETTINGS)


def _attach(log: Log, store: object) -> Archive:
    return offload.attach(log, store=store, settings=offload.Settings().with_parts(SMALL_BLOCKS))  # type: ignore[arg-type]


def _check_finished(log: Log, inner: MemoryStore) -> None:
    with _attach(log, inner) as archive:
        archive.offload("t", drop_hot=True)
        kinds = [past.commit.kind for past in archive.history.commits("t")]
        assert kinds == [CommitKind.DELETE, CommitKind.OFFLOAD]
        assert [record.value for record in log.topic("t").read()] == VALUES[2:]
        assert [record.value for record in archive.read("t", at="lsn:1")] == VALUES
        status = archive.status.topic("t")
        assert (status.pending_lsn, status.unfinished_attempts, status.diverged_lsn) == (None, 0, None)
        assert status.waiting_deletes == 0
    assert list(inner.list_uploads("")) == []
    assert sum("/segments/" in key for key in inner.list("")) == 2
    assert sum("/log/" in key for key in inner.list("")) == 2


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [lost, unreachable])
def test_every_single_fault_of_an_effect(when: str, error: object, template: Path, tmp_path: Path) -> None:
    for nth in range(1, 50):
        inner = MemoryStore()
        store = FaultyStore(inner, [Fault(nth=nth, when=when, error=error)])  # type: ignore[arg-type]
        with _copied(template, tmp_path / str(nth)) as log:
            try:
                with _attach(log, store) as archive:
                    archive.offload("t")
            except CatalogError:
                assert [record.value for record in log.topic("t").read()] == VALUES[2:]
            _check_finished(log, inner)
        if store.effects < nth:
            break
    assert nth == 11, "control, oplog, ref, upload, two parts, completion, index, two commits: ten effects"


def test_every_single_fault_of_a_read(template: Path, tmp_path: Path) -> None:
    for method in ("get", "get_range", "head", "list"):
        for nth in range(1, 6):
            inner = MemoryStore()
            store = FaultyStore(inner, [Fault(nth=nth, method=method, error=unreachable)])
            with _copied(template, tmp_path / f"{method}{nth}") as log:
                try:
                    with _attach(log, store) as archive:
                        archive.offload("t", drop_hot=True)
                except CatalogError:
                    assert log.topic("t").inner.hot_floor in {1, 11}
                _check_finished(log, inner)


def test_a_writer_that_may_not_delete_leaves_objects_and_goes_on(template: Path, tmp_path: Path) -> None:
    from catalog.errors import AccessDenied

    class NoDeletes(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            if method in {"delete", "list_uploads"}:
                raise AccessDenied("memory://", f"no {method}")
            return act()

    inner = MemoryStore()
    with _copied(template, tmp_path / "data") as log:
        with (
            _attach(log, FaultyStore(inner, [Fault(nth=1, method="put", error=unreachable)])) as archive,
            pytest.raises(CatalogError),
        ):
            archive.offload("t")
        with _attach(log, NoDeletes(inner)) as archive:
            assert archive.offload("t").offloaded_seq == 10
        assert sum("/segments/" in key for key in inner.list("")) == 3  # one data object without an index


def test_requests_of_an_offload_are_those_that_it_needs(template: Path, tmp_path: Path) -> None:
    store = CountingStore(MemoryStore())
    with _copied(template, tmp_path / "data") as log, _attach(log, store) as archive:
        archive.offload("t")
        first = dict(store.counts)
        store.counts.clear()
        log.topic("t").append([b"more"])
        log.topic("t").seal()
        archive.offload("t")
        # The offload puts data object, index object and commit. It reads only the boundary, which may have risen.
        assert store.counts == {"put": 2, "put_new": 1, "get": 1}
    assert first["put_part"] == 2
    assert first["put_new"] == 5  # control, oplog, ref, two commits


def test_point_reads_are_one_request_when_the_index_is_known(template: Path, tmp_path: Path) -> None:
    store = CountingStore(MemoryStore())
    with _copied(template, tmp_path / "data") as log, _attach(log, store) as archive:
        archive.offload("t", drop_hot=True)
        list(log.topic("t").read(5, 5))
        store.counts.clear()
        assert [record.value for record in log.topic("t").read(10, 10)] == [VALUES[9]]
        assert store.counts == {"get_range": 1}


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("trouble", ["damaged", "changed"])
def test_what_was_published_stays_so_though_no_checkpoint_can_be_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    class Troubled(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            if trouble == "changed" and method in {"put_new", "swap"} and str(key).endswith("/checkpoints"):
                vid = Vid.parse(str(key).partition("/")[0])
                inner.put(key, encode_checkpoint_set(CheckpointSet(vid, nonce=os.urandom(16))), {})
                raise KeyChanged(key)
            return act()

    inner = MemoryStore()
    with opened(tmp_path, inner) as (log, archive):
        ship(archive, log, "t", b"a")
        key = checkpoints_key(archive.history.snapshot("t").vid)
        if trouble == "damaged":
            inner.put(key, b"damaged", {})
    with opened(tmp_path, Troubled(inner), catalog=CatalogSettings(checkpoint_commits=1)) as (log, archive):
        log.topic("t").append([b"b", b"c"])
        log.topic("t").seal()
        result = archive.offload("t", drop_hot=True)
        assert ([each.lsn for each in result.published], result.released_seq) == ([2], 3)
        assert archive.delete("t", before=3).lsn == 3
        assert values(archive, "t") == [b"c"]
    told = [record.getMessage() for record in caplog.records if record.name == "offload.write.publisher"]
    assert len(told) == 2
    assert all(key in message for message in told)
    assert [each.place for each in Scrub(inner, now_ms=0).run().findings] == [key] * (trouble == "damaged")
