"""A file that a program writes lines to and logrotate rotates, and the place up to which a topic has its lines.

`seglog append --follow` appends the lines as numbered batches of a producer (seglog.values.producer):

    1  It writes the place of batch N durably: the number, and which bytes of the file the batch has.
    2  It appends batch N.
    3  The place of batch N + 1 says that batch N is in.

GROWING-1  After a kill, the follower reads the bytes of the last place again, and appends them with the same number.
    If the topic has that batch, this appends nothing. So each line is there once.
GROWING-2  A file is the one of a place if its first bytes are the same. The file of the same inode comes first, and
    then the rotated files beside it. One of them may be a copy, or compressed, and it may lack the last lines.
GROWING-3  The end of a file is final if another one took its name and has bytes, and nothing came for a second. Then
    a last line without a line feed is whole, and the follower goes on with the next file.
GROWING-4  The names of rotated files tell their order: FILE.2, FILE.1, FILE, or by date FILE.20261120, FILE.

A rotation by copying loses the lines that come between its copy and its cut. The follower cannot see them either.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from xxhash import xxh3_128_hexdigest

from offload.errors import Misuse
from seglog import FileCorrupt, OsFiles, RecordTooLarge
from seglog.base.dataclasses import dataclass
from seglog.files.file_system import OpenFile

#: Returns up to so many bytes from an offset on.
_Reader: TypeAlias = Callable[[int, int], bytes]

_READ_BYTES = 8 * 1024 * 1024
_MARK_BYTES = 1024
_SLOT_BYTES = 4096
_PAUSE = partial(time.sleep, 0.2)
_QUIET_POLLS = 5
_ROTATED = r"[.-](\d[\d_:T.-]*?|old)(?:\.gz)?"
_COUNTER_DIGITS = 5  # a longer number is a date or a time
_NEWEST = (2, 0, "")


@dataclass(frozen=True, slots=True)
class Place:
    """The bytes from `start` to `end` of a file are batch `number`. `mark` is the digest of its first bytes."""

    topic: str
    producer: str
    epoch: int = 0
    number: int = -1
    inode: tuple[int, ...] = ()
    start: int = 0
    end: int = 0
    mark: str = xxh3_128_hexdigest(b"")


class PlaceFile:
    """The file that has the newest place, locked. Its two slots take turns, so that a power cut spares the former."""

    def __init__(self, path: Path) -> None:
        files, self._turn = OsFiles(), 0
        try:
            self._file = OpenFile(files, path, os.O_RDWR | os.O_CREAT)
            files.lock(self._file.fd)
            files.sync_dir(path.parent)  # a process that was killed here may have left the name unsynced
        except BlockingIOError:
            raise Misuse(f"another process follows with the place in {path}") from None
        except OSError as error:
            reason = f"{path} is for the place in the followed file, and cannot be written: {error.strerror}"
            raise Misuse(f"{reason}. Name another file with --state") from None

    def load(self, topic: str) -> Place | None:
        """Return the newest place, or None in a new file. Raises `FileCorrupt`, and `Misuse`."""
        data = self._file.read(2 * _SLOT_BYTES, 0)
        found = [each for at in (0, _SLOT_BYTES) if (each := _slot(data[at : at + _SLOT_BYTES])) is not None]
        if not found:
            if data:
                raise FileCorrupt(self._file.path, 0, "it has no place in a followed file")
            return None
        self._turn, place = max(found, key=lambda each: each[0])
        if place.topic != topic:
            reason = f"{self._file.path} has a place for the topic {place.topic}, not {topic}"
            raise Misuse(f"{reason}. Name another file with --state")
        return place

    def save(self, place: Place) -> None:
        """Write the place, durably on return."""
        self._turn += 1
        body = json.dumps([self._turn, asdict(place)]).encode()
        slot = xxh3_128_hexdigest(body).encode() + b" " + body
        self._file.write(slot.ljust(_SLOT_BYTES - 1) + b"\n", self._turn % 2 * _SLOT_BYTES)
        self._file.datasync()


def _slot(data: bytes) -> tuple[int, Place] | None:
    """Return the turn and the place of a slot, or None if it has none."""
    digest, _, body = data.rstrip().partition(b" ")
    if digest != xxh3_128_hexdigest(body).encode():
        return None
    turn, fields = json.loads(body)
    return turn, Place(**{**fields, "inode": tuple(fields["inode"])})


class _Listed(NamedTuple):
    """A file as its directory lists it. `order` is higher for a newer one."""

    order: tuple[int, int, str]
    path: Path
    inode: tuple[int, ...]
    size_bytes: int


class GrowingFile:
    """The bytes of a file and of those that it was rotated to, in order.

    `note` gets a line if bytes may be missing. `pause` waits before each further look.
    """

    def __init__(
        self, path: Path, longest: int, note: Callable[[str], None], pause: Callable[[], None] = _PAUSE
    ) -> None:
        self._path, self._longest, self._note, self._pause, self._files = path, longest, note, pause, OsFiles()
        self._read: _Reader | None
        self._reset(None, ())

    def take_up(self, place: Place) -> bytes | None:
        """Continue behind a place, and return the bytes of its batch. None if no file has them any more.

        A copy may lack the last ones. Then return the whole lines that are there, and continue behind these.
        """
        self._inode, self._end, self._mark = place.inode, place.end, place.mark
        self._marked = min(place.end, _MARK_BYTES)
        size = place.end - place.start
        text = b"" if self._find() is None or self._read is None else self._read(size, place.start)
        if len(text) == size:
            return text
        self._lose()
        lines = text[: text.rfind(b"\n") + 1]
        self._end = place.start + len(lines) if lines else self._end
        return lines or None

    def texts(self) -> Iterator[bytes]:
        """Yield whole lines, and wait for more, without end. Before the next text, the caller has taken the last one.

        Raises `RecordTooLarge` for a line without an end.
        """
        quiet = waiting = 0
        while True:
            text = self._behind(max(_READ_BYTES, self._longest + 1))
            if text is None:
                if self._find() is None:
                    self._lose()
                continue
            if self._marked < _MARK_BYTES:
                self._know(self._head_with(text, len(text)))
            lines = text[: text.rfind(b"\n") + 1]
            if not lines and len(text) > self._longest:
                raise RecordTooLarge(len(text), self._longest, is_cut=True)
            quiet, waiting = (quiet + 1 if len(text) == waiting else 0), len(text)
            following = self._next() if not lines and quiet >= _QUIET_POLLS else None
            if lines or (following is not None and text):
                yield (taken := lines or text)
                self._end += len(taken)
            elif following is not None:
                self._open(following)
                quiet = 0
            else:
                self._pause()

    def placed(self, place: Place, text: bytes, start: int, stop: int) -> Place:
        """Return the place of the next batch: these bytes of the text that `texts` has yielded last."""
        mark, at = xxh3_128_hexdigest(self._head_with(text, stop)), self._end
        number, inode = place.number + 1, self._inode
        return replace(place, number=number, inode=inode, start=at + start, end=at + stop, mark=mark)

    def _head_with(self, text: bytes, stop: int) -> bytes:
        """Return the first bytes of the file, up to so many bytes of a text behind what was taken."""
        return (self._head[: self._end] + text[: min(stop, _MARK_BYTES)])[:_MARK_BYTES]

    def _know(self, head: bytes) -> None:
        self._head, self._marked, self._mark = head, len(head), xxh3_128_hexdigest(head)

    def _behind(self, length: int) -> bytes | None:
        """Return bytes behind those that were taken, or None if these are not there any more."""
        if self._read is None:
            return b""
        kept = min(self._end, 1)
        data = self._read(kept + length, self._end - kept)
        return data[kept:] if len(data) >= kept and self._is_head(self._read) else None

    def _is_head(self, read: _Reader) -> bool:
        """Return whether this file begins as the one that was read (GROWING-2)."""
        head = read(self._marked, 0)
        if xxh3_128_hexdigest(head) != self._mark:
            return False
        self._head = head
        return True

    def _find(self) -> _Listed | None:
        """Open the file that has what was taken, and return it (GROWING-2)."""
        for each in sorted(self._listed(), key=lambda listed: listed.inode == self._inode)[::-1]:
            if each.inode == self._inode or self._marked:  # if nothing was read, only the inode tells
                read, size = self._reader(each)
                if read is not None and self._is_head(read):
                    self._read, self._inode, self._end = read, each.inode, min(self._end, size)
                    return each
        self._reset(None, ())
        return None

    def _lose(self) -> None:
        self._note(f"{self._path} was cut or replaced, and no file beside it goes on with its lines: some may be lost")

    def _next(self) -> _Listed | None:
        """Return the file that comes after the present one, once it has bytes (GROWING-3, GROWING-4)."""
        listed = self._listed()
        newest = [each for each in listed if each.order == _NEWEST and each.size_bytes]
        place = next((each for each in listed if each.inode == self._inode), None)
        if place is None and self._read is not None and newest:
            place = self._find()  # it was compressed
        after = newest if place is None else [each for each in listed if each.order > place.order]
        return next((each for each in after if each.size_bytes), None)

    def _open(self, listed: _Listed) -> None:
        read, _ = self._reader(listed)
        if read is not None:  # else it was renamed in between, and the next look finds it
            self._reset(read, listed.inode)

    def _reset(self, read: _Reader | None, inode: tuple[int, ...]) -> None:
        self._read, self._inode, self._end = read, inode, 0
        self._know(b"")

    def _listed(self) -> list[_Listed]:
        """Return the file and those that it was rotated to, oldest first, as they were at one moment."""
        before, now = self._scanned(), self._scanned()
        while [each[:3] for each in before] != [each[:3] for each in now]:
            before, now = now, self._scanned()
        return now

    def _scanned(self) -> list[_Listed]:
        found: dict[tuple[int, int, str], _Listed] = {}
        pattern = re.compile(re.escape(self._path.name) + _ROTATED)
        # A plain file comes before a compressed one: as long as it is there, the other one may be unfinished.
        for name in sorted(os.listdir(self._path.parent), key=lambda name: name.endswith(".gz")):
            match, path = pattern.fullmatch(name), self._path.parent / name
            if match is not None or name == self._path.name:
                order = _NEWEST if match is None else _order(match[1])
                with suppress(FileNotFoundError):
                    stat = path.stat()
                    found.setdefault(order, _Listed(order, path, (stat.st_dev, stat.st_ino), stat.st_size))
        return sorted(found.values())

    def _reader(self, listed: _Listed) -> tuple[_Reader | None, int]:
        """Open a file, and return its size too. Return None if the name is another file by now, or none yet."""
        with suppress(FileNotFoundError, EOFError, gzip.BadGzipFile, zlib.error):
            file = OpenFile(self._files, listed.path, os.O_RDONLY)
            stat = os.fstat(file.fd)
            if (stat.st_dev, stat.st_ino) == listed.inode:
                if listed.path.suffix != ".gz":
                    return file.read, stat.st_size
                stream = gzip.open(listed.path)  # noqa: SIM115 - the reader keeps it open
                return partial(_unpacked, stream), stream.seek(0, os.SEEK_END)
        return None, 0


def _order(suffix: str) -> tuple[int, int, str]:
    """Return the order of a rotated file: a counter is higher for an older file, a date for a newer one."""
    number = "1" if suffix == "old" else suffix
    return (0, -int(number), "") if number.isdigit() and len(number) <= _COUNTER_DIGITS else (1, 0, suffix)


def _unpacked(stream: gzip.GzipFile, length: int, offset: int) -> bytes:
    stream.seek(offset)
    return stream.read(length)
