"""The state of a job: a directory in which it puts finished work on record, so that the next run continues.

    <directory>/<job>.jsonl
    first line    the facts of the job, such as the remote: they are the same in every run
    other lines   [key, value]: a finished unit of work, and what it gave

STATE-1  A line is on the disk before the job begins the next round. A killed run loses the work of one round.
STATE-2  A last line that a kill cut does not count. The next run removes it.
STATE-3  One run at a time has the file. It holds a lock, which ends with the process.
STATE-4  A job without a directory keeps its state in memory, so each run does all of the work.

The directory is the driver's. Executors never see it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from offload.errors import InvalidOption

__all__ = ["Directory", "JobState", "job_state"]

Directory: TypeAlias = str | os.PathLike[str]


class JobState:
    """The finished units of a job, by key. `done` has what each gave."""

    def __init__(self, file: BinaryIO | None, done: dict[str, Any]) -> None:
        self._file = file
        self.done = done

    def add(self, finished: Mapping[str, Any]) -> None:
        """Put units on record. The values are JSON."""
        self.done.update(finished)
        if self._file is not None and finished:
            self._file.write(b"".join(_line(item) for item in finished.items()))
            self._file.flush()
            os.fsync(self._file.fileno())


@contextmanager
def job_state(directory: Directory | None, job: str, facts: Mapping[str, Any]) -> Iterator[JobState]:
    """Open the state of a job, with the work of earlier runs.

    Raises `InvalidOption` if the state has other facts, is damaged, or another run has it open.
    """
    if directory is None:
        yield JobState(None, {})
        return
    path = Path(directory) / f"{job}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise InvalidOption("state", f"{path} cannot be opened: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidOption("state", f"another run has {path} open", hint="wait until it has ended") from None
        yield JobState(file, _known(file, path, dict(facts)))


def _known(file: BinaryIO, path: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the finished units. Write the facts if the file is new."""
    file.seek(0)
    body = file.read()
    whole = body[: body.rfind(b"\n") + 1]
    file.truncate(len(whole))
    hint = "name another directory, or delete the file to begin anew"
    try:
        found, *rest = [json.loads(line) for line in whole.splitlines()] or [facts]
        done = {str(key): value for key, value in rest}
    except ValueError as error:
        raise InvalidOption("state", f"{path} is damaged: {error}", hint=hint) from error
    if found != facts:
        raise InvalidOption("state", f"{path} belongs to a job with {_line(found).decode().strip()}", hint=hint)
    if not whole:
        file.write(_line(facts))
    return done


def _line(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode() + b"\n"
