"""The local catalog belongs to the process that opened it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog.errors import OpenedByParent
from catalog.local_catalog import LocalCatalog
from tests.catalog.samples import vid
from tests.children import in_child, outcome_of, quiet_fork
from tests.worlds.local_rows import FULL, HANDLE, PENDING

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def calls_on(local: LocalCatalog) -> dict[str, Callable[[], Any]]:
    return {
        "save": lambda: local.save(handle=HANDLE),
        "handle": lambda: local.handle(HANDLE.name),
        "handles": local.handles,
        "delete_handle": lambda: local.delete_handle(HANDLE.name),
        "attempts": local.attempts,
        "delete_attempt": lambda: local.delete_attempt(FULL.sid),
        "put_commits": lambda: local.put_commits(vid(1), [(1, b"x")]),
        "newest_lsn": lambda: local.newest_lsn(vid(1)),
        "volumes": local.volumes,
    }


def test_each_call_in_a_child_raises_and_the_parent_goes_on(tmp_path: Path) -> None:
    with LocalCatalog(tmp_path / "c.db") as local:
        local.save(handle=PENDING, attempt=FULL)

        def everything() -> dict[str, str]:
            outcomes = {name: outcome_of(call) for name, call in calls_on(local).items()}
            local.close()
            return outcomes

        assert in_child(everything) == dict.fromkeys(calls_on(local), "OpenedByParent")
        local.save(handle=HANDLE)
        assert local.attempts() == (FULL,)
    with LocalCatalog(tmp_path / "c.db") as local:
        assert set(local.handles()) == {HANDLE, PENDING}


def test_the_error_names_the_process_that_opened_it_also_in_a_grandchild(tmp_path: Path) -> None:
    def told() -> str:
        with pytest.raises(OpenedByParent) as raised:
            local.attempts()
        return str(raised.value)

    with LocalCatalog(tmp_path / "c.db") as local:
        assert in_child(lambda: [told(), in_child(told)]) == [str(OpenedByParent(os.getpid()))] * 2


def test_the_error_names_the_parent() -> None:
    assert str(os.getpid()) in str(OpenedByParent(os.getpid()))
    assert "spawn" in str(OpenedByParent(1).hint)


EXITS = """
import os, sys, time
from pathlib import Path
from catalog.local_catalog import LocalCatalog
from tests.worlds.local_rows import FULL, PENDING
local = LocalCatalog(Path(sys.argv[1]))
view = LocalCatalog(Path(sys.argv[1]), read_only=True)
local.save(handle=PENDING, attempt=FULL)
reading, writing = os.pipe()
pid = os.fork()
if not pid:
    os.close(writing)
    os.read(reading, 1)  # until the parent is gone
    del local, view
    sys.exit(0)
wal = Path(sys.argv[1] + "-wal")
print(pid, wal.stat().st_size, view._copy.name, flush=True)
os._exit(0)
"""


def test_a_child_that_outlives_the_parent_leaves_the_database_alone(tmp_path: Path) -> None:
    """The child exits with all its finalizers, as the last process that has the database open.

    In that place SQLite alone would checkpoint and delete the WAL file.
    """
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", EXITS, str(tmp_path / "c.db")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pid, size, copy = done.stdout.split()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (tmp_path / "c.db-wal").stat().st_size == int(size) > 0
    assert Path(copy).is_dir()
    for path in Path(copy).iterdir():
        path.unlink()
    Path(copy).rmdir()
    with LocalCatalog(tmp_path / "c.db") as local:
        assert (local.attempts(), local.handles()) == ((FULL,), (PENDING,))


def test_a_child_opens_another_catalog_or_this_one_when_the_parent_has_closed_it(tmp_path: Path) -> None:
    local = LocalCatalog(tmp_path / "c.db")
    local.save(handle=PENDING)
    reading, writing = os.pipe()

    def own() -> list[str]:
        with LocalCatalog(tmp_path / "other.db") as other:
            other.save(handle=HANDLE)
        assert os.read(reading, 1) == b"x"
        with LocalCatalog(tmp_path / "c.db") as mine:
            mine.save(attempt=FULL)
            return [handle.name for handle in mine.handles()]

    closing = threading.Timer(0.3, lambda: (local.close(), os.write(writing, b"x")))
    closing.start()
    assert in_child(own) == [PENDING.name]
    closing.join()
    os.close(reading)
    os.close(writing)
    with LocalCatalog(tmp_path / "c.db") as local:
        assert local.attempts() == (FULL,)


def test_forks_while_other_threads_write(tmp_path: Path) -> None:
    """The child waits for no thread of the parent, and opens its own catalog."""
    stop = threading.Event()
    with LocalCatalog(tmp_path / "c.db") as local:

        def write() -> None:
            while not stop.is_set():
                local.save(handle=PENDING, attempt=FULL)

        threads = [threading.Thread(target=write) for _ in range(3)]
        for thread in threads:
            thread.start()

        def misuse(number: int) -> str:
            with LocalCatalog(tmp_path / f"{number}.db") as own:
                own.save(handle=HANDLE)
            return outcome_of(local.handles)

        for number in range(5):
            assert in_child(lambda number=number: misuse(number)) == "OpenedByParent"  # type: ignore[misc]
        stop.set()
        for thread in threads:
            thread.join()
        assert local.handles() == (PENDING,)


def test_two_threads_that_fork_at_once_give_back_their_own_turns(tmp_path: Path) -> None:
    catalogs = [LocalCatalog(tmp_path / f"{number}.db") for number in range(3)]

    def forks() -> None:
        for _ in range(5):
            pid = quiet_fork()
            if not pid:
                os._exit(0)
            os.waitpid(pid, 0)

    threads = [threading.Thread(target=forks) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for local in catalogs:
        local.save(handle=HANDLE)
        local.close()
