"""The process that uploads. It reads sealed segments from descriptors, and asks its parent for everything else.

    to the child              from the child
    Begin, once               (turn, method, bytes)     asks to send a request; the answer comes when its turn has come,
                                                        with the newest credentials, or None without a source
    UploadJob                 (part, seq)               asks for a SealedPart: its fields and both descriptors, or None
    Answer to a question      (frames, first, last)     asks for whole frames from `first` on, one or more
                              (upload_id, id)           reports an upload's id; the answer says that it is on record
                              (credentials, key)        asks for newer credentials: the store refused this access key
                              RequestDone               reports one request, for the metrics
                              FramesRead                reports bytes of frames
                              Done, Failed              ends the job

CHILD-1  The child keeps no state. If it ends, its attempt is one whose process died (offload.write.attempt).
CHILD-2  If the parent is gone, the child ends at once, whatever it is doing.
    It ignores the signals that a terminal or a service manager sends to all processes: the parent decides on them.
CHILD-3  The child sends no request before the parent allows it. There the parent applies its limits, and stops an
    upload.
CHILD-4  If the tenant has a source of credentials, they come over the channel alone. The child's environment has none.
"""

from __future__ import annotations

import itertools
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog import SegmentRef
from catalog.objects.object_store import ObjectStore
from catalog.objects.wrapped import MeasuredStore
from offload.read.cold_reader import ColdReader
from offload.settings import ColdSettings, OffloadSettings
from offload.wiring import open_store
from offload.worker.channel import CarriedError, Channel
from offload.write.segment_upload import UploadJob, remote_frames, upload_segment
from seglog.base.dataclasses import dataclass
from seglog.errors import FileCorrupt
from seglog.files.file_system import OsFiles
from seglog.format.frames import Frames, take_apart
from seglog.reading.sealed import OpenedSegment

if TYPE_CHECKING:
    from catalog.objects.s3_credentials import FoundCredentials

_REPORT_S = 0.25  # between reports of bytes


@dataclass(frozen=True, slots=True)
class Begin:
    """The first message. `url` has no credentials.

    With `has_source`, they come with each turn (CHILD-4). Otherwise they come from the environment, which is the
    parent's.
    """

    url: str
    cold: ColdSettings
    offload: OffloadSettings
    nice: int
    has_source: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """The fields of a `seglog.reading.sealed.SealedPart`. Its descriptors come beside the message."""

    topic_id: int
    first_seq: int
    last_seq: int
    paths: tuple[Path, Path]


@dataclass(frozen=True, slots=True)
class Question:
    number: int
    what: str
    about: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    number: int
    value: Any


@dataclass(frozen=True, slots=True)
class RequestDone:
    """A report of one request. `outcome` is `ok` or the error's name."""

    method: str
    outcome: str
    elapsed_s: float
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class FramesRead:
    frame_bytes: int


@dataclass(frozen=True, slots=True)
class Done:
    segment: SegmentRef


@dataclass(frozen=True, slots=True)
class Failed:
    error: CarriedError


class _Parent:
    """The parent, as the child sees it. Any thread may ask and tell."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[tuple[Any, tuple[int, ...]]]] = {}
        self.jobs: queue.SimpleQueue[UploadJob] = queue.SimpleQueue()
        self.credentials = _ParentsCredentials(self)

    def listen(self) -> None:
        """Receive messages until the parent is gone, then end the process (CHILD-2). Never returns."""
        with suppress(EOFError):
            while True:
                message, descriptors = self._channel.receive()
                if isinstance(message, Answer):
                    self._waiting.pop(message.number).set_result((message.value, descriptors))
                else:
                    self.jobs.put(message)
        os._exit(1)

    def ask(self, what: str, *about: Any) -> tuple[Any, tuple[int, ...]]:
        question = Question(next(self._numbers), what, about)
        answered: Future[tuple[Any, tuple[int, ...]]] = Future()
        self._waiting[question.number] = answered
        self._channel.send(question)
        return answered.result()

    def tell(self, message: object) -> None:
        self._channel.send(message)


class _LimitedStore(MeasuredStore):
    """Asks the parent before each request (CHILD-3), and reports each outcome to the parent."""

    def __init__(self, inner: ObjectStore, parent: _Parent) -> None:
        super().__init__(inner)
        self._parent = parent

    def _begin(self, method: str, sent_bytes: int) -> None:
        credentials, _ = self._parent.ask("turn", method, sent_bytes)
        if credentials is not None:
            self._parent.credentials.newest = credentials

    def _end(self, method: str, outcome: str, elapsed_s: float, sent_bytes: int, received_bytes: int) -> None:
        self._parent.tell(RequestDone(method, outcome, elapsed_s, sent_bytes, received_bytes))


class _ParentsCredentials:
    """The `CredentialSource` of the child: the newest credentials that the parent gave."""

    def __init__(self, parent: _Parent) -> None:
        self._parent = parent
        self.newest: FoundCredentials | None = None

    def current(self, refused: str = "") -> FoundCredentials:
        if self.newest is not None and self.newest.access_key != refused:
            return self.newest
        newest: FoundCredentials
        newest, _ = self._parent.ask("credentials", refused)
        self.newest = newest
        return newest


def main(descriptor: int, store_for: Callable[[Begin], ObjectStore] | None = None) -> None:
    """Run the process until its end. `descriptor` is of its end of the channel."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=descriptor))
    begin, _ = channel.receive()
    os.nice(begin.nice)
    parent = _Parent(channel)
    threading.Thread(target=parent.listen, name="seglog-parent", daemon=True).start()
    credentials = parent.credentials if begin.has_source else None
    remote = store_for(begin) if store_for else open_store(begin.url, begin.cold, begin.offload, credentials)
    store = _LimitedStore(remote, parent)
    while True:
        job = parent.jobs.get()
        try:
            segment = _uploaded(store, job, parent, begin.cold)
        except Exception as error:
            parent.tell(Failed(CarriedError.of(error)))
        else:
            parent.tell(Done(segment))


def _uploaded(store: ObjectStore, job: UploadJob, parent: _Parent, cold: ColdSettings) -> SegmentRef:
    def on_record(upload_id: str) -> None:
        parent.ask("upload_id", upload_id)

    if not job.views:
        return upload_segment(store, job, _reported(parent, _frames(parent, job)), on_upload_id=on_record)
    with closing(ColdReader(store, cold)) as reader:
        frames = remote_frames(reader, job.views)
        return upload_segment(store, job, _reported(parent, frames), on_upload_id=on_record)


def _reported(parent: _Parent, source: Iterator[Frames]) -> Iterator[Frames]:
    """Yield the frames of `source`, and report their bytes to the parent.

    Each report wakes the parent, which has appends to make. So the child reports a few times a second, at any rate of
    the upload.
    """
    unreported_bytes, reported_s = 0, time.monotonic()
    for frames in source:
        unreported_bytes += frames.size_bytes
        if time.monotonic() >= reported_s + _REPORT_S:
            parent.tell(FramesRead(unreported_bytes))
            unreported_bytes, reported_s = 0, time.monotonic()
        yield frames
    parent.tell(FramesRead(unreported_bytes))


def _frames(parent: _Parent, job: UploadJob) -> Iterator[Frames]:
    """Yield all hot frames of the job, in order (seglog.reading.sealed)."""
    seq, last_seq = job.first_seq, job.last_seq
    while seq <= last_seq:
        part, descriptors = parent.ask("part", seq)
        source = (
            _from_parent(parent, seq, last_seq) if part is None else _read(parent, part, descriptors, seq, last_seq)
        )
        for frames in source:
            seq += len(frames)
            yield frames


def _read(parent: _Parent, part: Part, descriptors: tuple[int, ...], first: int, last: int) -> Iterator[Frames]:
    data, idx = descriptors
    segment = OpenedSegment(OsFiles(), part.topic_id, part.first_seq, (data, idx), part.paths)
    seq, end = first, min(part.last_seq, last)
    try:
        for batch in segment.batches(first, end):
            frames = batch.apart()
            for some in _from_parent(parent, seq, batch.last_seq) if frames is None else (frames,):
                yield some
                seq += len(some)
    except FileCorrupt:
        # Damage, or a read while the log sets flags. The log knows which of the two, and names a damaged file.
        yield from _from_parent(parent, seq, end)


def _from_parent(parent: _Parent, first: int, last: int) -> Iterator[Frames]:
    while first <= last:
        frames, _ = parent.ask("frames", first, last)
        yield take_apart(frames)
        first += len(frames)
