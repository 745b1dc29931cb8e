"""Check each object of a remote, and read a part of them: `seglog verify --read-data-subset`.

A state file makes the check resumable. Its lines are JSON:

    first line    the remote, and the part that this run reads: {"remote": URL, "start": 0.05, "end": 0.1}
    other lines   the ids of segments that were read and found whole

VPART-1  If a run ends early, the next run with the same file reads the rest of the same part.
VPART-2  After a whole run, the file has only the start of the next part. So 20 runs of 5% read every byte once.
VPART-3  One run at a time has the file. It holds a lock, which ends with the process.
"""

from __future__ import annotations

import fcntl
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from catalog.format.ids import Sid
from catalog.gc.object_check import Looked, ObjectCheck
from catalog.objects import ObjectStore
from offload.commands.directory import Tell, watch_of
from offload.errors import DamageFound, InvalidParameters

__all__ = ["ObjectLooked", "ObjectsLooked", "parse_share", "verify_part"]


@dataclass(frozen=True, slots=True)
class ObjectLooked:
    """One object. `state` is found, lost, corrupt, orphan or uploading."""

    object: str
    state: str
    was_read: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ObjectsLooked:
    """The counts of a check by state, and the part of the segments that it read: places from `start` to `end`.

    `resumed` counts the segments of the part that an earlier run had read.
    """

    objects: int
    found: int
    lost: int
    corrupt: int
    orphan: int
    uploading: int
    read_bytes: int
    start: float
    end: float
    resumed: int


def parse_share(text: str) -> float:
    """Return the share of a text such as 5%. Raises `InvalidParameters`."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not text.endswith("%") or not 0 < percent <= 100:
        raise InvalidParameters(f"--read-data-subset takes a share above 0% and up to 100%, such as 5%, not {text!r}")
    return percent / 100


def verify_part(
    store: ObjectStore, now_ms: int, tell: Tell, *, share: float, state: Path | None
) -> Iterator[ObjectLooked | ObjectsLooked]:
    """Yield each object, then the counts. Raises `DamageFound` if one is lost or corrupt, and `InvalidParameters` for a
    state file that is not of this remote. Others may use the remote meanwhile.
    """
    counts: Counter[str] = Counter()
    with _part(state, store.url, share) as part:
        check = ObjectCheck(
            store,
            now_ms,
            part.start,
            part.end,
            part.done,
            part.add,
            watch_of(tell, "verify"),
        )
        for looked in check.run():
            counts[looked.state] += bool(looked.key)
            yield _shown(looked)
        part.finish()
    words = ("found", "lost", "corrupt", "orphan", "uploading")
    states = {word: counts[word] for word in words}
    yield ObjectsLooked(
        objects=counts.total(),
        read_bytes=check.read_bytes,
        start=part.start,
        end=part.end,
        resumed=len(part.done),
        **states,
    )
    if bad := counts["lost"] + counts["corrupt"]:
        raise DamageFound(bad, store.url, "keep the objects, and compare with a backup or a replica")


def _shown(looked: Looked) -> ObjectLooked:
    return ObjectLooked(looked.key, looked.state, looked.was_read, looked.reason)


class _Part:
    """The part of one run, and the segments that earlier tries have read."""

    def __init__(self, file: BinaryIO | None, url: str, start: float, end: float, done: frozenset[str]) -> None:
        self._file = file
        self._url = url
        self.start = start
        self.end = end
        self.done = done

    def add(self, sid: Sid) -> None:
        if self._file is not None:
            self._file.write(json.dumps(str(sid)).encode() + b"\n")
            self._file.flush()

    def finish(self) -> None:
        """Leave only the start of the next part."""
        if self._file is not None:
            self._file.truncate(0)
            self._file.write(_line({"remote": self._url, "start": self.end % 1}))
            self._file.flush()


@contextmanager
def _part(state: Path | None, url: str, share: float) -> Iterator[_Part]:
    if state is None:
        start = random.random()
        yield _Part(None, url, start, start + share, frozenset())
        return
    try:
        file = state.open("a+b")
    except OSError as error:
        raise InvalidParameters(f"--state {state} cannot be opened: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidParameters(f"another run has --state {state} open") from None
        except OSError as error:
            raise InvalidParameters(f"--state {state} cannot be locked: {error.strerror}") from error
        file.seek(0)
        start, end, done = _known(file.read(), state, url, share)
        file.truncate(0)
        file.write(_line({"remote": url, "start": start, "end": end}))
        file.write(b"".join(json.dumps(each).encode() + b"\n" for each in sorted(done)))
        file.flush()
        yield _Part(file, url, start, end, done)


def _known(body: bytes, state: Path, url: str, share: float) -> tuple[float, float, frozenset[str]]:
    """Return the part of an unfinished run, or the next part. A last line that a kill cut does not count."""
    lines = body[: body.rfind(b"\n") + 1].splitlines()
    if not lines:
        return 0.0, share, frozenset()
    try:
        facts, *rest = [json.loads(line) for line in lines]
        remote, start = str(facts["remote"]), float(facts["start"])
        end = float(facts["end"]) if "end" in facts else start + share
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidParameters(f"--state {state} is no state of a check: {error}") from None
    if remote != url:
        raise InvalidParameters(f"--state {state} belongs to {remote}; name another file")
    return start, end, frozenset(map(str, rest))


def _line(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode() + b"\n"
