"""The error within a `with` wins over one of the close, which becomes a note of it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import seglog
from seglog import DiskFull, aio
from seglog.engine.work_thread import InCaller
from seglog.interrupts import closed_after, closing_after
from seglog.journal.journal import Journal
from tests.faults.files import FailingFiles, UnsyncedFiles


class _Within(Exception):
    pass


def _full() -> FailingFiles:
    return FailingFiles(UnsyncedFiles(), 0, errno.ENOSPC, for_good=True, only=("make_dir", "pwrite"))


def _log(path: Path, error: Exception | None) -> None:
    files = _full()
    with seglog.open(path, files=files, upkeep=InCaller) as log:
        log.topic("t").append([b"x"], durability="disk")
        files.at = 1
        if error is not None:
            raise error


def _aio(path: Path, error: Exception | None) -> None:
    async def run() -> None:
        files = _full()
        async with aio.open(path, files=files, upkeep=InCaller) as log:
            await log.topic("t").append([b"x"], durability="disk")
            files.at = 1
            if error is not None:
                raise error

    asyncio.run(run())


def _journal(path: Path, error: Exception | None) -> None:
    files = _full()
    with Journal(path, files=files) as journal:
        journal.append(1, b"x")
        files.at, files.only = 1, ("pwrite", "pwritev", "datasync")
        if error is not None:
            raise error


@pytest.mark.parametrize("use", [_log, _aio, _journal])
def test_the_error_within_wins(tmp_path: Path, use: Callable[[Path, Exception | None], None]) -> None:
    with pytest.raises(_Within) as caught:
        use(tmp_path / "one", _Within("750,000 records are in"))
    [note] = caught.value.__notes__
    assert note.startswith("the close after it failed too: ")
    with pytest.raises((DiskFull, seglog.WriterPoisoned)):
        use(tmp_path / "two", None)


def test_a_generator_that_ends_early_tells_of_a_failed_close() -> None:
    def items() -> Iterator[int]:
        error: BaseException | None = None
        try:
            yield 1
        except BaseException as raised:
            error = raised
            raise
        finally:
            with closing_after(error):
                raise _Within

    running = items()
    assert next(running) == 1
    with pytest.raises(_Within):
        running.close()  # type: ignore[attr-defined]


def test_a_close_at_the_end_is_raised_and_one_after_an_error_is_noted() -> None:
    class Broken:
        def close(self) -> None:
            raise _Within

    with pytest.raises(_Within), closed_after(Broken()):
        pass
    with pytest.raises(KeyError) as caught, closed_after(Broken()):
        raise KeyError
    assert len(caught.value.__notes__) == 1
    with pytest.raises(_Within), closing(Broken()):  # the standard one, for comparison
        raise KeyError
