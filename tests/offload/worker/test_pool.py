"""Test that a worker process makes the same objects as a thread, and raises the same errors.

A worker never outlives its parent.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import offload
import seglog
from catalog import Sid, Vid
from catalog.format import keys
from catalog.format.commit import Codec
from catalog.objects.object_store import ObjectStore
from offload import Archive, ColdSettings, OffloadSettings
from offload.errors import Stopping
from offload.read.cold_reader import ColdReader
from offload.wiring import open_store
from offload.worker.channel import CarriedError, WorkerFailed
from offload.worker.pool import WorkerPool
from offload.write.segment_upload import LocalUploader, UploadJob
from seglog import FileCorrupt, Log, LogSettings, NoSuchTopic, Topic, TopicConfig
from seglog.values.deletes import DeleteWhere
from tests.faults.offloads import SMALL_BLOCKS, SMALL_LOG
from tests.faults.store import Fault, FaultyStore
from tests.offload.worker.children import ERRORS, MODULE, PLAN
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
_EFFECTS = range(1, 8)  # the begin of the upload, four parts, the completion, the index object
_KINDS = (1, 3, 6, 7)
VID, SID = Vid.new(1), Sid.new(2)
TOPIC = "t"


class RequestLimiter:
    """Record calls and their bytes, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.sent: list[int] = []

    def take(self, sent_bytes: int) -> None:
        self.sent.append(sent_bytes)

    def answered(self, method: str, outcome: str, elapsed_s: float, sent_bytes: int, received_bytes: int) -> None:
        self.events.append(f"{method} {outcome}")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return (tmp_path_factory.mktemp("pool") / "remote").as_uri()


@pytest.fixture(scope="module")
def shared(url: str) -> Iterator[tuple[WorkerPool, RequestLimiter]]:
    """A pool for all tests that only send. A child that starts costs more than most of them."""
    limiter = RequestLimiter()
    with closing(WorkerPool(url, ColdSettings(), SMALL_BLOCKS, limiter, MODULE)) as made:
        yield made, limiter


@pytest.fixture
def limiter(shared: tuple[WorkerPool, RequestLimiter]) -> RequestLimiter:
    shared[1].events.clear()
    shared[1].sent.clear()
    return shared[1]


@pytest.fixture
def pool(shared: tuple[WorkerPool, RequestLimiter]) -> WorkerPool:
    return shared[0]


@pytest.fixture
def own_url(tmp_path: Path) -> str:
    return (tmp_path / "remote").as_uri()


@pytest.fixture
def own_pool(own_url: str, limiter: RequestLimiter) -> Iterator[WorkerPool]:
    """A pool whose children start in the test, with its plan."""
    with closing(WorkerPool(own_url, ColdSettings(), SMALL_BLOCKS, limiter, MODULE)) as made:
        yield made


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", settings=SMALL_LOG) as opened:
        opened.create_topic(TOPIC, TopicConfig(keep_history=True))
        yield opened


def filled(log: Log, count: int = 40) -> Topic:
    topic = log.topic(TOPIC)
    for number in range(1, count + 1):
        topic.append([b"%03d " % number * 3000], tag=f"tag-{number % 3}" if number % 4 else None)
    topic.seal()
    return topic


def job(topic: Topic, codec: Codec = Codec.NONE) -> UploadJob:
    return UploadJob(TOPIC, VID, SID, 1, topic.head_seq, codec, SMALL_BLOCKS)


def send(uploader: WorkerPool | LocalUploader, sent: UploadJob, topic: Topic, **heard: Any) -> Any:
    given: dict[str, Callable[..., object]] = {"on_upload_id": lambda _: None, "on_bytes": lambda _: None, **heard}
    return uploader.upload(sent, topic, **given)


def local_uploader(store: ObjectStore) -> LocalUploader:
    return LocalUploader(store, ColdReader(store))


def objects(store: ObjectStore) -> list[tuple[bytes, Any]]:
    found = [keys.data_key(VID, SID), keys.index_key(VID, SID)]
    return [(store.get(key), store.head(key).metadata) for key in found]


def is_there(pid: int) -> bool:
    """Return True if the process runs. A zombie does not run."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def assert_same_as_by_a_thread(log: Log, pool: WorkerPool, url: str, tmp_path: Path, codec: Codec) -> None:
    topic = log.topic(TOPIC)
    sent = job(topic, codec)
    heard: list[int] = []
    by_worker = send(pool, sent, topic, on_bytes=heard.append)
    with closing(open_store((tmp_path / "other").as_uri())) as other, closing(open_store(url)) as ours:
        assert send(local_uploader(other), sent, topic) == by_worker
        assert objects(other) == objects(ours)
    assert sum(heard) == by_worker.frame_bytes


@pytest.mark.parametrize("codec", Codec)
def test_a_worker_makes_the_same_objects_as_a_thread(
    log: Log, pool: WorkerPool, url: str, tmp_path: Path, codec: Codec
) -> None:
    filled(log)
    assert_same_as_by_a_thread(log, pool, url, tmp_path, codec)


@pytest.mark.parametrize("reclaimed", [False, True])
def test_deleted_records_are_what_the_log_says_they_are(
    log: Log, pool: WorkerPool, url: str, tmp_path: Path, reclaimed: bool
) -> None:
    topic = filled(log)
    settled = topic.inner.delete(DeleteWhere(tag="tag-1"))
    topic.inner.settle_deletes(settled.op)
    log.checkpoint()
    topic.delete(before=9)
    log.checkpoint()
    if reclaimed:
        log.reclaim()
    assert_same_as_by_a_thread(log, pool, url, tmp_path, Codec.NONE)


def test_relocated_segments_and_lost_records_are_asked_for(tmp_path: Path, pool: WorkerPool, url: str) -> None:
    settings = LogSettings(max_record_bytes=16 << 10, segment_max_events=12, hot_retain_bytes=1, cold_dir="../cold")
    with seglog.open(tmp_path / "data", settings=settings) as log:
        topic = filled(log, 20)
        topic.append([b"gone"] * 5, durability="ephemeral")
        filled(log, 20)
        log.configure(TOPIC, TopicConfig(keep_history=True))
        log.checkpoint()
        assert_same_as_by_a_thread(log, pool, url, tmp_path, Codec.NONE)


def test_a_segment_may_be_written_anew_and_removed_while_it_is_read(
    log: Log, pool: WorkerPool, url: str, tmp_path: Path
) -> None:
    topic = filled(log)
    frames = list(topic.inner.frames(1, 40))
    is_first = [True]

    def meanwhile(count: int) -> None:
        if count and is_first.pop() if is_first else False:
            topic.delete(tag="tag-2")
            log.checkpoint()
            log.reclaim()

    send(pool, job(topic), topic, on_bytes=meanwhile)
    with closing(open_store(url)) as store:
        data = store.get(keys.data_key(VID, SID))
    assert all(frame[4:] in data for frame in frames), "the delete is listed: its commit comes after this one"


def test_the_upload_is_on_record_before_its_first_part_goes(
    log: Log, pool: WorkerPool, limiter: RequestLimiter
) -> None:
    topic = filled(log)
    events_then: list[list[str]] = []
    sent_then: list[list[int]] = []

    def on_upload_id(found: str) -> None:
        assert found
        events_then.append(list(limiter.events))
        sent_then.append(list(limiter.sent))

    segment = send(pool, job(topic), topic, on_upload_id=on_upload_id)
    assert events_then == [["create_upload ok"]]
    assert sent_then == [[0]]
    parts = [size for size in limiter.sent if size]
    assert sum(parts[:-1]) == segment.data_length
    assert limiter.events.count("put_part ok") == len(parts) - 1 > 2
    assert limiter.events[-2:] == ["complete_upload ok", "put ok"]


def test_nothing_is_sent_when_the_upload_cannot_be_recorded(
    log: Log, pool: WorkerPool, limiter: RequestLimiter
) -> None:
    def refuse(_: str) -> None:
        raise OSError(28, "no space")

    topic = filled(log)
    with pytest.raises(OSError, match="no space"):
        send(pool, job(topic), topic, on_upload_id=refuse)
    assert limiter.sent == [0]
    assert pool.pids == []


@dataclass(frozen=True, slots=True)
class Failing:
    """A pool whose store fails as the text in `plan` says. All tests of failures share it and its one topic."""

    topic: Topic
    pool: WorkerPool
    url: str
    plan: Path


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Failing]:
    place = tmp_path_factory.mktemp("failing")
    url, plan = (place / "remote").as_uri(), place / "plan"
    with (
        seglog.open(place / "data", settings=SMALL_LOG) as log,
        closing(WorkerPool(url, ColdSettings(), SMALL_BLOCKS, RequestLimiter(), MODULE)) as pool,
    ):
        log.create_topic(TOPIC, TopicConfig(keep_history=True))
        yield Failing(filled(log, 20), pool, url, plan)


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("method", ["create_upload", "put_part", "complete_upload", "put"])
def test_a_store_that_fails_there_is_the_same_error_here(
    failing: Failing, monkeypatch: pytest.MonkeyPatch, method: str, kind: str
) -> None:
    topic, pool = failing.topic, failing.pool
    monkeypatch.setenv(PLAN, f"fail {failing.plan}")  # for the first test, which starts the worker that the others use
    failing.plan.write_text(f"{method} {kind}")
    sent = replace(job(topic), sid=Sid.new(3))
    with pytest.raises(Exception) as there:
        send(pool, sent, topic)
    with closing(open_store(failing.url)) as store:
        uploader = local_uploader(FaultyStore(store, [Fault(nth=1, error=ERRORS[kind], method=method)]))
        with pytest.raises(Exception) as here:
            send(uploader, sent, topic)
    if kind == "nobodys":
        assert isinstance(there.value, WorkerFailed)
        assert str(here.value) in str(there.value)
        return
    assert type(there.value) is type(here.value)
    assert (str(there.value), there.value.args) == (str(here.value), here.value.args)
    *hints, origin = there.value.__notes__
    assert {**vars(there.value), "__notes__": hints} == {"__notes__": [], **vars(here.value)}
    assert "in the process that uploads" in origin
    assert len(pool.pids) == 1, "it is good for the next one"


def test_damage_is_told_with_its_place(log: Log, pool: WorkerPool) -> None:
    topic = filled(log)
    path = sorted(log.path.rglob("*.data"))[1]
    with path.open("r+b") as file:
        file.seek(500)
        file.write(b"\xff\xff")
    with pytest.raises(FileCorrupt) as there:
        send(pool, job(topic), topic)
    assert there.value.path == path


def test_a_topic_that_goes_meanwhile_is_told(log: Log, pool: WorkerPool) -> None:
    topic = filled(log)
    log.configure(TOPIC, TopicConfig(keep_history=False))
    is_gone: list[bool] = []

    def on_bytes(count: int) -> None:
        if count and not is_gone:
            is_gone.append(True)
            log.delete_topic(TOPIC)

    with pytest.raises(NoSuchTopic):
        send(pool, job(topic), topic, on_bytes=on_bytes)


@pytest.mark.parametrize("method", ["create_upload", "put_part", "complete_upload", "put"])
def test_stopping_ends_a_worker_wherever_it_is(
    log: Log, own_pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    pool = own_pool
    monkeypatch.setenv(PLAN, f"hang {method}")
    topic = filled(log)
    is_over = threading.Event()
    pids: list[int] = []

    def on_bytes(_: int) -> None:
        pids[:] = pool.pids
        if is_over.is_set():
            raise Stopping

    threading.Timer(0.5, is_over.set).start()
    with pytest.raises(Stopping):
        send(pool, job(topic), topic, on_bytes=on_bytes)
    assert len(pids) == 1
    assert not is_there(pids[0])
    assert pool.pids == []


class Gate(RequestLimiter):
    """Holds each request until `opened`. `waits` says that one has come."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.opened = threading.Event(), threading.Event()

    def take(self, sent_bytes: int) -> None:
        self.waits.set()
        assert self.opened.wait(60)


def test_uploads_beyond_the_limit_of_a_pool_take_turns_and_can_be_stopped(log: Log, url: str) -> None:
    topic, gate = filled(log), Gate()
    jobs = [replace(job(topic), sid=Sid.new(number)) for number in (3, 4)]
    with (
        closing(WorkerPool(url, ColdSettings(), SMALL_BLOCKS, gate, MODULE, most=1)) as pool,
        ThreadPoolExecutor(2) as threads,
    ):
        first = threads.submit(send, pool, jobs[0], topic)
        assert gate.waits.wait(60)
        looks: list[int] = []
        second = threads.submit(send, pool, jobs[1], topic, on_bytes=looks.append)

        def stop(_: int) -> None:
            raise Stopping

        wait_until(lambda: looks)  # it waits for the child
        with pytest.raises(Stopping):
            send(pool, replace(jobs[1], sid=Sid.new(5)), topic, on_bytes=stop)
        assert len(pool.pids) == 1
        assert not first.done()
        gate.opened.set()
        assert first.result(60).sid == jobs[0].sid
        assert second.result(60).sid == jobs[1].sid
        assert len(pool.pids) == 1


def test_a_limited_pool_replaces_a_child_that_failed_and_wakes_who_waits_when_it_closes(log: Log, url: str) -> None:
    topic, gate = filled(log), Gate()
    pool = WorkerPool(url, ColdSettings(), SMALL_BLOCKS, gate, MODULE, most=1)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(send, pool, job(topic), topic)
        assert gate.waits.wait(60)
        [pid] = pool.pids
        os.kill(pid, signal.SIGKILL)
        gate.opened.set()
        with pytest.raises(WorkerFailed):
            first.result(60)
        send(pool, job(topic), topic)
        assert len(pool.pids) == 1
        gate.opened.clear()
        gate.waits.clear()
        running = threads.submit(send, pool, job(topic), topic)
        assert gate.waits.wait(60)
        looks: list[int] = []
        waiting = threads.submit(send, pool, job(topic), topic, on_bytes=looks.append)
        wait_until(lambda: looks)
        pool.close()
        with pytest.raises(WorkerFailed):
            waiting.result(60)
        gate.opened.set()
        with pytest.raises(WorkerFailed):
            running.result(60)


@pytest.mark.long
def test_closing_ends_a_worker_that_works_and_one_that_waits(
    log: Log, url: str, limiter: RequestLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = filled(log)
    pool = WorkerPool(url, ColdSettings(), SMALL_BLOCKS, limiter, MODULE)
    send(pool, job(topic), topic)
    [idle] = pool.pids
    assert is_there(idle)
    monkeypatch.setenv(PLAN, "hang put")
    with closing(WorkerPool(url, ColdSettings(), SMALL_BLOCKS, limiter, MODULE)) as other:
        found: list[BaseException] = []

        def work() -> None:
            try:
                send(other, job(topic), topic)
            except WorkerFailed as death:
                found.append(death)

        thread = threading.Thread(target=work)
        thread.start()
        wait_until(lambda: "complete_upload ok" in limiter.events[6:] or not thread.is_alive())
        assert thread.is_alive()
        [busy] = other.pids
        other.close()
        thread.join()
        assert len(found) == 1
        assert not is_there(busy)
    pool.close()
    assert not is_there(idle)
    with pytest.raises(WorkerFailed, match="does not run"):
        send(pool, job(topic), topic)


def test_an_idle_worker_that_was_killed_is_replaced(log: Log, pool: WorkerPool) -> None:
    topic = filled(log)
    first = send(pool, job(topic), topic)
    [pid] = pool.pids
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert send(pool, job(topic), topic) == first
    assert pool.pids != [pid]


# ---------------------------------------------------------------- the whole attempt


def run_on(archive: Archive) -> None:
    archive.offload(TOPIC, drop_hot=True)
    status = archive.status.topic(TOPIC)
    assert (status.offloaded_seq, status.hot_first_seq, status.unfinished_attempts) == (40, 41, 0)


def check_store(url: str, archive: Archive) -> None:
    [past] = archive.history.commits(TOPIC)
    named = {str(segment.sid) for segment in past.commit.segments}
    with closing(open_store(url)) as store:
        found = {key.rpartition("/")[2].removesuffix(".index") for key in store.list("") if "/segments/" in key}
        assert found == named
        assert list(store.list_uploads("")) == []


def test_small_objects_are_merged_by_a_worker_too(
    log: Log, own_pool: WorkerPool, own_url: str, limiter: RequestLimiter
) -> None:
    settings = OffloadSettings(merge_count=3)
    with offload.attach(log, own_url, settings=offload.Settings().with_parts(settings), uploader=own_pool) as archive:
        for start in range(3):
            filled(log, 4)
            log.topic(TOPIC).delete(before=start + 1)
            archive.offload(TOPIC, drop_hot=True)
        before = list(log.topic(TOPIC).read())
        limiter.events.clear()
        heard: list[int] = []
        [merged] = archive.upkeep.compact(TOPIC, on_bytes=heard.append)
        assert merged.segment is not None
        assert sum(heard) == merged.segment.frame_bytes
        assert limiter.events.count("get_range ok") >= 6, "indexes and chunks of three objects"
        assert limiter.events[-2:] == ["put ok", "put ok"]
        assert list(log.topic(TOPIC).read()) == before
        assert len(archive.history.snapshot(TOPIC).segments) == 1
        assert archive.status.topic(TOPIC).unfinished_attempts == 0


@pytest.mark.long
@pytest.mark.parametrize("effects", [_KINDS, pytest.param(_EFFECTS, marks=pytest.mark.soak(part=2))], ids=len)
@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.long), "after"])
def test_a_worker_that_is_killed_at_any_effect_costs_an_attempt_and_nothing_else(
    log: Log, own_url: str, limiter: RequestLimiter, monkeypatch: pytest.MonkeyPatch, when: str, effects: Sequence[int]
) -> None:
    """Each round clears up the last attempt and begins another one."""
    filled(log)
    with offload.attach(
        log,
        own_url,
        settings=offload.Settings().with_parts(SMALL_BLOCKS),
        uploader=WorkerPool(own_url, ColdSettings(), SMALL_BLOCKS, limiter, MODULE),
    ) as archive:
        # With two parts at a time the order of the last effects of an upload may vary, but there are nine.
        for effect in effects:
            monkeypatch.setenv(PLAN, f"kill {effect} {when}")
            with pytest.raises(WorkerFailed) as death:
                archive.offload(TOPIC)
            assert f"was killed by signal {signal.SIGKILL}" in str(death.value)
            assert archive.status.topic(TOPIC).unfinished_attempts == 1
        monkeypatch.delenv(PLAN)
        run_on(archive)
        check_store(own_url, archive)
        assert [record.seq for record in log.topic(TOPIC).read()] == list(range(1, 41))


@pytest.mark.long
def test_a_worker_ends_when_its_parent_is_killed(tmp_path: Path, url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.offload.worker.orphan", str(tmp_path / "d"), url],
        cwd=ROOT, stdout=subprocess.PIPE,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_there(pid)
        parent.kill()
        parent.stdout.read()
    for _ in range(3_000):
        if not is_there(pid):
            break
        threading.Event().wait(0.01)
    assert not is_there(pid)


def test_signals_for_all_processes_are_the_parents_to_decide_on(log: Log, pool: WorkerPool) -> None:
    topic = filled(log)
    send(pool, job(topic), topic)
    [pid] = pool.pids
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    send(pool, job(topic), topic)
    assert pool.pids == [pid]


@pytest.mark.parametrize("error", [make("a/key") for name, make in ERRORS.items() if name != "nobodys"])
def test_an_error_arrives_as_what_it_was(error: Exception) -> None:
    found = CarriedError.of(error).error()
    assert type(found) is type(error)
    assert (str(found), found.args) == (str(error), error.args)
