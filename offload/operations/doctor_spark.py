"""Examine the way of Spark to a remote: `seglog doctor --spark`.

The checks read a small archive of their own, below a fresh prefix doctor/.../ in the remote. They delete it at the end.

    session       Java starts, and PySpark reaches it
    jvm reader    the jar fits this Spark, and the planner answers
    python        Python on every executor imports seglog, and reads from the remote
    jvm           the JVM of every executor reads from the remote

A check is `skipped` if an earlier one failed that it needs.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import offload
import seglog
from catalog.errors import CatalogError
from catalog.format.ids import Sid
from catalog.format.keys import Key, doctor_prefix
from catalog.objects.object_store import ObjectStore
from offload.errors import ChecksFailed
from offload.operations.doctor import CheckDone, Left
from offload.settings import OffloadSettings, Settings
from offload.spark.session import JavaNotStarted
from offload.wiring import open_store
from seglog import Clock, LogSettings, NotInstalled

if TYPE_CHECKING:
    from catalog.objects.s3_credentials import CredentialSource

_HINT = "see docs/spark.md for what a cluster needs"
_TOPIC = "doctor"
_TASKS_OF_A_CORE = 4  # so that every executor gets some
_MOST_TASKS = 256
_ROUNDS = 10  # on a busy machine, one executor may take all tasks of a round
_COUNTED_WITHIN_S = 10
_EXECUTORS_START_WITHIN_S = 30
_NO_MORE_EXECUTORS_S = 3
_REASON_LENGTH = 300
_OF_A_TASK = re.compile(r"Lost task .*?\): (.*)")


_Open = Callable[[str], ObjectStore]


class _Broken(Exception):
    """The check failed. The text says why."""


def start_session(master: str | None) -> Any:
    """Return a session of Spark. Without `master`, Spark's own configuration names the cluster."""
    from offload.spark.session import new_session

    session = new_session("seglog doctor", master=master, shows_progress=False)
    session.sparkContext.setLogLevel("OFF")
    return session


def doctor_spark(
    start: Callable[[], Any],
    url: str,
    clock: Clock,
    settings: OffloadSettings | None = None,
    credentials: CredentialSource | None = None,
) -> Iterator[CheckDone | Left]:
    """Check that the session that `start` makes reads the remote `url` with both readers, on every executor.

    `settings` and `credentials` are for the archive of the checks. Spark reads it with credentials of its own.

    Raises `ChecksFailed` at the end if a check failed.
    """
    prefix = doctor_prefix(Sid.new(clock.now_ms()))
    root = f"{url.rstrip('/')}/{prefix.rstrip('/')}"
    settings = settings or OffloadSettings()
    opened = partial(open_store, offload=settings, credentials=credentials)
    checks: dict[str, CheckDone] = {}
    session: Any = None

    def check(name: str, act: Callable[[], str], *needs: str) -> CheckDone:
        if missing := [need for need in needs if checks[need].outcome != "ok"]:
            done = CheckDone(name, "skipped", "", f"it needs {missing[0]}")
        else:
            done = _checked(name, act)
        checks[name] = done
        return done

    def begun() -> str:
        nonlocal session
        session = start()
        _await_executors(session)
        return f"Spark {session.version}, Java {session._jvm.java.lang.System.getProperty('java.version')}"  # noqa: SLF001

    yield check("session", begun)
    yield check("jvm reader", lambda: _registered(session), "session")
    try:
        yield check("archive", lambda: _made(opened, url, prefix, root, _tasks(session), settings), "session")
        yield check("python", lambda: _read_by_python(session, opened, root), "archive")
        yield check("jvm", lambda: _read_by_jvm(session, root), "archive", "jvm reader")
    finally:
        reason = _deleted(opened, root) if "archive" in checks and checks["archive"].outcome != "skipped" else ""
    if reason:
        yield Left(root, reason)
    if failed := sum(done.outcome == "failed" for done in checks.values()):
        raise ChecksFailed(failed, url, _HINT)


def _checked(name: str, act: Callable[[], str]) -> CheckDone:
    try:
        return CheckDone(name, "ok", act(), "")
    except _Broken as broken:
        return CheckDone(name, "failed", "", str(broken))
    except (JavaNotStarted, NotInstalled) as missing:
        return CheckDone(name, "failed", "", f"{missing}; {missing.hint}")
    except Exception as error:  # whatever Spark, Java or the store raise is the reason
        return CheckDone(name, "failed", "", _reason(error))


def _reason(error: Exception) -> str:
    """Return the line of an error that tells most: of a job the error of its task, of a Java trace the first cause."""
    if task := _OF_A_TASK.search(str(error)):
        return f"{type(error).__name__}: {task[1]}"[:_REASON_LENGTH]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    line = next(iter(causes[:1] or lines[:1]), "")
    return f"{type(error).__name__}: {line.removeprefix('Caused by: ')}"[:_REASON_LENGTH]


def _registered(session: Any) -> str:
    from offload.spark.registration import why_python

    reason = why_python(session)
    if reason is not None:
        raise _Broken(reason)
    return f"it serves format('seglog'), and {sys.executable} plans"


def _tasks(session: Any) -> int:
    return min(_MOST_TASKS, max(_TASKS_OF_A_CORE * int(session.sparkContext.defaultParallelism), 1))


def _made(opened: _Open, url: str, prefix: str, root: str, records: int, settings: OffloadSettings) -> str:
    """Make an archive with a segment for each task."""
    with closing(opened(url)) as store:
        store.put_new(Key(f"{prefix}list/t"), b"")  # makes the directory of the archive in a file:// remote
    with (
        tempfile.TemporaryDirectory() as directory,
        seglog.open(Path(directory) / "log", settings=LogSettings(segment_max_events=1)) as log,
        offload.attach(log, root, store=opened(root), settings=Settings().with_parts(settings)) as archive,
    ):
        topic = log.topic(_TOPIC)
        for number in range(records):
            topic.append([b"record %d" % number])
        topic.seal()
        archive.offload(_TOPIC)
    return f"{records} records in {root}"


def _deleted(opened: _Open, root: str) -> str:
    """Delete the archive. Return why something is left, or an empty text."""
    try:
        with closing(opened(root)) as store:
            for key in list(store.list("")):
                store.delete(Key(key))
    except CatalogError as error:
        return str(error)
    return ""


def _read_by_python(session: Any, opened: _Open, root: str) -> str:
    """Read a range of an object in each task. The function travels by value, so that a missing seglog is its answer."""
    with closing(opened(root)) as store:
        key = next(Key(key) for key in store.list("") if "/segments/" in key and not key.endswith(".index"))

    def read(_: Iterator[int]) -> Iterator[tuple[str, str]]:
        version = ".".join(map(str, sys.version_info[:3]))
        try:
            from offload.spark import scan
            from offload.wiring import open_store

            with closing(open_store(root)) as store:
                store.get_range(key, 0, 8)
        except Exception as error:
            yield f"Python {version} at {sys.executable}", f"{type(error).__name__}: {error}"
        else:
            yield f"Python {version}, seglog at {Path(scan.__file__).parents[2]}", ""

    answers: set[tuple[str, str]] = set()
    tasks = _tasks(session)

    def job() -> None:
        answers.update(session.sparkContext.parallelize(range(tasks), tasks).mapPartitions(read).collect())

    executors = _on_every_executor(session, job)
    if wrong := [f"{who}: {error}" for who, error in sorted(answers) if error]:
        raise _Broken("; ".join(wrong)[:_REASON_LENGTH])
    return f"{executors} with {', '.join(sorted(who for who, _ in answers))}"


def _read_by_jvm(session: Any, root: str) -> str:
    tasks = _tasks(session)

    def job() -> None:
        load = session.read.format("seglog").options(topic=_TOPIC, reader="jvm", verify="record", minPartitions=tasks)
        rows = load.load(root).selectExpr("sum(length(value))", "count(*)").collect()
        if rows[0][1] != tasks:
            raise _Broken(f"{rows[0][1]} records of {tasks} came back")

    return _on_every_executor(session, job)


def _on_every_executor(session: Any, job: Callable[[], None]) -> str:
    """Run the job until every executor had a task of it. Return which executors these are."""
    reached: set[str] = set()
    for _ in range(_ROUNDS):
        before = _tasks_of_executors(session)
        job()
        until = time.monotonic() + _COUNTED_WITHIN_S
        while True:
            now = _tasks_of_executors(session)
            reached |= {name for name, count in now.items() if count > before.get(name, 0)}
            if reached >= now.keys():
                return f"{len(now)} of {len(now)} executors"
            if sum(now.values()) >= sum(before.values()) + _tasks(session) or time.monotonic() > until:
                break
            time.sleep(0.1)
    raise _Broken(f"{len(reached)} of {len(now)} executors had a task, after {_ROUNDS} rounds")


def _await_executors(session: Any) -> None:
    """Wait until a cluster has executors, and no more of them come. It starts them one after the other."""
    if session.sparkContext._jsc.sc().isLocal():  # noqa: SLF001 - pyspark has no other way to it
        return
    since = last_change = time.monotonic()
    count = 0
    while time.monotonic() < (last_change + _NO_MORE_EXECUTORS_S if count else since + _EXECUTORS_START_WITHIN_S):
        now = len(_tasks_of_executors(session))
        if now != count:
            count, last_change = now, time.monotonic()
        time.sleep(0.1)


def _tasks_of_executors(session: Any) -> Mapping[str, int]:
    """Return the number of tasks of each executor. In local mode the driver is the only one."""
    context = session.sparkContext._jsc.sc()  # noqa: SLF001 - pyspark has no other way to it
    executors = context.statusStore().executorList(True)
    each = (executors.apply(number) for number in range(executors.size()))
    counts = {executor.id(): executor.totalTasks() for executor in each}
    return counts if context.isLocal() else {name: count for name, count in counts.items() if name != "driver"}
