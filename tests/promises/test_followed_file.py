"""A followed file has each line in the topic once, in order, whatever is killed and however the file is rotated.

The histories drive the follower step by step: a history writes, rotates in the ways of logrotate, compresses, and kills
the follower at its pauses, and before and after each place and each append. The processes are killed by SIGKILL, also
the daemon that takes the appends.
"""

from __future__ import annotations

import gzip
import io
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

import seglog
from offload.operations.append import Follower, Format, batches
from offload.operations.growing_file import GrowingFile, Place, PlaceFile
from offload.operations.record_text import Batch
from tests.daemons import ServedDirectory
from tests.forge import forged
from tests.seams.limits import Limit, set_limit
from tests.waiting import wait_until
from tests.work import amounts, seed_of, tell


class _Ended(BaseException):
    """The follower is killed, or the history ends."""


class _Rotated:
    """A file of lines with its rotations. `lines` are those that a reader has to get.

    `unsure` are lines that came between the copy and the cut of a rotation. No later reader gets them.
    """

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path, self._chance = path, chance
        self._files = [b""]
        self._number = 0
        self._is_copied = False
        self._late: IO[bytes] | None = None
        self._looks = 0
        self.rotations = 0
        self.unsure: set[bytes] = set()

    @property
    def lines(self) -> list[bytes]:
        return [line for text in self._files for line in text.removesuffix(b"\n").split(b"\n") if text]

    def step(self) -> None:
        """Do something. A rotation ends within a second, so within four looks of the follower.

        Until then, some lines go to the file that has another name now, or come between a copy and its cut.
        """
        is_rotating = self._is_copied or self._late is not None
        self._chance.choice([self.write, self.write, self.rotate, lambda: None])()
        self._looks = self._looks + 1 if is_rotating else 0
        if self._late is not None and is_rotating:
            self._write_late(self._late)
        if self._looks == 3:
            self.end_rotation()

    def end_rotation(self) -> None:
        """Cut the file that was copied, or close the one that was renamed."""
        if self._is_copied:
            self.rotate()
        if self._late is not None:
            self._late.close()
            self._late = None

    def _write_late(self, stream: IO[bytes]) -> None:
        text = b"late %04d\n" % self._number
        self._number += 1
        stream.write(text)
        self._files[-2] += text

    def write(self, *, is_whole: bool = False) -> None:
        """Append some lines, of which the last one may lack its end."""
        parts = [b"line %04d" % (self._number + index) for index in range(self._chance.randint(1, 4))]
        self._number += len(parts)
        text = b"\n".join(parts) + (b"\n" if is_whole or self._is_copied or self._chance.random() < 0.8 else b"")
        with self.path.open("ab") as stream:
            stream.write(text)
        if self._is_copied:
            self.unsure.update(parts)
        else:
            self._files[-1] += text

    def rotate(self) -> None:
        """Rotate as `create`, `nocreate` and `copytruncate` of logrotate do. The cut of the last may come later."""
        if self._late is not None or not self.path.exists() or not self.path.stat().st_size:
            return
        if not self._is_copied:
            self._shift()
        first, way = self._name(1), self._chance.choice(["create", "nocreate", "copytruncate"])
        if not self._is_copied and way == "copytruncate":
            shutil.copy(self.path, first)
            self._is_copied = self._files[-1].endswith(b"\n")
            if self._is_copied:
                return
        if self._is_copied or way == "copytruncate":
            os.truncate(self.path, 0)
            self._is_copied = False
        else:
            self.path.rename(first)
            if way == "create":
                self.path.touch()
                self._late = first.open("ab", buffering=0) if self._chance.random() < 0.5 else None
        if self._late is None and self._chance.random() < 0.3:
            self._compress(1)
        self._files.append(b"")
        self.rotations += 1

    def finish(self) -> None:
        """End a rotation in progress, and write whole lines."""
        self.end_rotation()
        self.write(is_whole=True)

    def _name(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _shift(self) -> None:
        count = len(self._files)
        for number in range(count, 0, -1):
            for end in ("", ".gz"):
                old = self._name(number).with_name(self._name(number).name + end)
                if old.exists():
                    old.rename(self._name(number + 1).with_name(self._name(number + 1).name + end))

    def _compress(self, number: int) -> None:
        plain = self._name(number)
        with gzip.open(plain.with_name(plain.name + ".gz"), "wb") as stream:
            stream.write(plain.read_bytes())
        plain.unlink()


class _Killing:
    """Passes a call on, and kills the follower before or after it now and then."""

    def __init__(self, inner: Any, call: str, kill: Callable[[], None]) -> None:
        self._inner, self._call, self._kill = inner, call, kill

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name != self._call:
            return found

        def called(*arguments: Any, **options: Any) -> Any:
            self._kill()
            result = found(*arguments, **options)
            self._kill()
            return result

        return called


def _batches_of(text: bytes) -> Iterator[Batch]:
    return batches(io.BytesIO(text), Format.LINES, tag=None, node=None, max_record_bytes=1000, is_file=False)


def _history(root: Path, chance: random.Random) -> tuple[int, int]:
    """Run a history of a followed file, and check it. Return the numbers of kills and of rotations."""
    root.mkdir()
    written = _Rotated(root / "app.log", chance)
    written.write(is_whole=True)
    steps, kills, quiet = 60, 0, 0

    def kill() -> None:
        if steps and chance.random() < 0.06:
            raise _Ended

    def pause() -> None:
        nonlocal steps, quiet
        kill()
        if steps:
            steps -= 1
            written.step()
            if not steps:
                written.finish()
        else:
            quiet += 1
            if quiet > 1000 or _last_of(log) == written.lines[-1]:
                quiet = 1000
                raise _Ended

    notes: list[str] = []
    stat = written.path.stat()
    with seglog.open(root / "data") as log:
        topic = log.topic("t")
        place: Place | None = Place("t", "p", inode=(stat.st_dev, stat.st_ino))
        while quiet < 1000:
            places = PlaceFile(root / "place")
            place = places.load("t") or place
            assert place is not None
            growing = GrowingFile(written.path, 1000, notes.append, pause)
            follower = Follower(
                _Killing(topic, "append_once", kill), growing, _Killing(places, "save", kill), place, _batches_of,
                notes.append,
            )  # fmt: skip
            try:
                for batch in follower.batches():
                    follower.append(batch, lambda: None)
            except _Ended:
                kills += 1
            del places, follower, growing  # the lock of the place ends with its process
        _check(written, [record.value for record in topic.read()])
    if not written.unsure:
        assert notes == []
    return kills, written.rotations


@pytest.mark.long
@amounts(60, all=600, soak=6000, part=8)
def test_each_line_is_there_once_over_kills_and_rotations(
    tmp_path: Path, amount: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit(monkeypatch, Limit.HEAD_OF_FOLLOWED_BYTES, 9)  # because the files are short
    seed, kills, rotations = seed_of("followed file"), 0, 0
    for number in range(amount):
        more = _history(tmp_path / f"{number}", random.Random(seed + number))
        kills, rotations = kills + more[0], rotations + more[1]
        shutil.rmtree(tmp_path / f"{number}")
    tell(f"{amount} followed files, {kills} kills, {rotations} rotations; lost, doubled: 0")
    assert kills > amount
    assert rotations > amount


@pytest.mark.long
@pytest.mark.parametrize("with_daemon", [False, True])
@amounts(2, all=20, soak=150, part=8)
def test_each_line_is_there_once_over_kills_of_processes(tmp_path: Path, amount: int, with_daemon: bool) -> None:
    chance = random.Random(seed_of(f"followed by processes {with_daemon}"))
    written, data = _Rotated(tmp_path / "app.log", chance), tmp_path / "data"
    seglog.open(data).close()
    written.write(is_whole=True)
    daemon = ServedDirectory(data, {}) if with_daemon else None
    words = ["-C", str(data), "append", "t", "--follow", str(written.path)]
    follower = forged(words, dict(os.environ))
    wait_until(lambda: _last(data) is not None)
    for _ in range(amount):
        looks = chance.randint(5, 50)
        rotation = chance.randrange(looks)
        for look in range(looks):
            (written.rotate if look == rotation else written.write)()
            time.sleep(0.01)
        written.end_rotation()
        if daemon is not None and chance.random() < 0.5:
            daemon.kill()
            daemon = ServedDirectory(data, {})
        else:
            follower.kill()
            follower.wait(60)
            follower.stderr.close()
            follower = forged(words, dict(os.environ))
    written.finish()
    wait_until(lambda: _last(data) == written.lines[-1])
    follower.terminate()
    assert follower.wait(60) == 143
    assert "the same command goes on behind them" in follower.stderr.read()
    follower.stderr.close()
    if daemon is not None:
        daemon.kill()
    with seglog.open(data) as log:
        _check(written, [record.value for record in log.topic("t").read()])
    tell(f"{amount} kills, {written.rotations} rotations, {len(written.lines)} lines; lost, doubled: 0")


def _check(written: _Rotated, found: list[bytes]) -> None:
    assert [line for line in found if line not in written.unsure] == written.lines
    assert len(found) == len({*found})


def _last(data: Path) -> bytes | None:
    with seglog.open(data, read_only=True) as log:
        return _last_of(log)


def _last_of(log: seglog.Log) -> bytes | None:
    topic = log.topic("t")
    return next(topic.read(topic.head_seq)).value if topic.head_seq else None
