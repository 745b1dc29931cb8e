"""Worker processes that upload. A worker makes one upload at a time, and stays for the next one.

    state      what is true                                 step that follows
    idle       it waits for an upload job                   upload
    working    a thread here answers its questions          done, failed: idle again
    gone       it ended, or was killed                      the pool starts another one when it needs one

POOL-1  An upload's id is on record before its first part is sent: the child waits for the answer.
POOL-2  If the parent raises an error while a child works, also in order to stop, the parent kills the child.
    The child has ended before the error reaches the caller. Its attempt stays like any other that was cut short: the
    next run aborts it and starts over.
POOL-3  If a child ends by itself, the parent raises `WorkerFailed`. An error that a child reports is raised here
    unchanged.
POOL-4  A pool with a limit never has more children than that. An upload beyond it waits for an idle child, and learns
    meanwhile that it is time to stop.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Protocol

from catalog import SegmentRef
from offload.settings import ColdSettings, OffloadSettings
from offload.wiring import variables_without_credentials
from offload.worker.channel import Channel, WorkerFailed
from offload.worker.child import Answer, Begin, Done, Failed, FramesRead, Part, Question, RequestDone
from offload.write.segment_upload import UploadJob
from seglog import Topic
from seglog.base.ownership import Owned, is_foreign
from seglog.reading.sealed import SealedFiles

if TYPE_CHECKING:
    from catalog.objects.s3_credentials import CredentialSource, FoundCredentials

_NICE = 10  # the kernel derives the I/O priority from it
_LOOK_S = 0.1  # between checks whether to stop
# The child gets the parent's path, so that both run the same code.
_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from {} import main; main(int(sys.argv[1]))"
_MODULE = "offload.worker.child"


class RequestLimiter(Protocol):
    """The limits and the metrics of requests (offload.daemon.store_gate)."""

    def take(self, sent_bytes: int) -> None:
        """Wait until a request that sends so many bytes may go."""

    def answered(self, method: str, outcome: str, elapsed_s: float, sent_bytes: int, received_bytes: int) -> None: ...


class WorkerPool(Owned):
    """An `Uploader` with worker processes. `url` is of the remote.

    If `credentials` is a source, each request of a child has its newest credentials, and the environment of the child
    has none (CHILD-4). Otherwise the child has the environment of this process.
    `module` names the module with the `main` of the child. `most` limits the children; None: one for each upload.
    """

    def __init__(
        self,
        url: str,
        cold: ColdSettings,
        offload: OffloadSettings,
        limiter: RequestLimiter,
        module: str = _MODULE,
        credentials: CredentialSource | None = None,
        most: int | None = None,
    ) -> None:
        self._module = module
        self._most = most
        self._begin = Begin(url, cold, offload, _NICE, credentials is not None)
        self._credentials = credentials
        self._limiter = limiter
        self._lock = threading.Condition()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._is_closed = False

    def upload(
        self, job: UploadJob, topic: Topic, *, on_upload_id: Callable[[str], None], on_bytes: Callable[[int], None]
    ) -> SegmentRef:
        worker = self._take(lambda: on_bytes(0))
        try:
            answered = worker.work(job, topic, self._limiter, on_upload_id, on_bytes)
        except BaseException:
            worker.end()
            with self._lock:
                self._all.discard(worker)
                self._lock.notify()
            raise
        with self._lock:
            is_kept = not self._is_closed
            if is_kept:
                self._idle.append(worker)
                self._lock.notify()
        if not is_kept:
            worker.end()
        if isinstance(answered, Failed):
            raise answered.error.error()
        return answered.segment

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the children."""
        with self._lock:
            return [worker.pid for worker in self._all]

    @property
    def live(self) -> int:
        """Return the number of children that are up."""
        with self._lock:
            return sum(worker.is_alive for worker in self._all)

    def close(self) -> None:
        """End every child, and wait for that. Idempotent."""
        if is_foreign(self):
            return
        with self._lock:
            self._is_closed = True
            idle, workers = self._idle, list(self._all)
            self._idle = []
            self._all.clear()
            self._lock.notify_all()
        for worker in workers:
            worker.kill()  # its channel stays open: a thread may be working with it
        for worker in idle:
            worker.end()

    def _take(self, look: Callable[[], None]) -> _Worker:
        """Return an idle child or a new one. While there is none, call `look`, which raises when it is time to stop."""
        while True:
            with self._lock:
                worker = self._free()
                if worker is not None:
                    return worker
                self._lock.wait(_LOOK_S)
            look()

    def _free(self) -> _Worker | None:
        """Return an idle child, or a new one within the limit (POOL-4). The caller has the lock."""
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            self._all.discard(worker)
            worker.end()
        if self._is_closed:
            raise _died("does not run")
        if self._most is not None and len(self._all) >= self._most:
            return None
        worker = _Worker(self._begin, self._module, self._credentials)
        self._all.add(worker)
        return worker


class _Worker:
    def __init__(self, begin: Begin, module: str, credentials: CredentialSource | None) -> None:
        self._credentials = credentials
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as undo:
            undo.callback(ours.close)
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM.format(module), str(theirs.fileno()), json.dumps(sys.path)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=None if credentials is None else variables_without_credentials(os.environ),
            )
            undo.pop_all()
        self._channel = Channel(ours)
        with suppress(EOFError):  # the next `work` finds it, too
            self._channel.send(begin)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process, and wait for its end. Idempotent."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Kill the process and close the channel. No other thread may be working with it."""
        self.kill()
        self._channel.close()

    def work(
        self,
        job: UploadJob,
        topic: Topic,
        limiter: RequestLimiter,
        on_upload_id: Callable[[str], None],
        on_bytes: Callable[[int], None],
    ) -> Done | Failed:
        files = None if job.views else topic.inner.sealed_files(job.first_seq, job.last_seq)
        try:
            self._channel.send(job)
            while True:
                if not self._channel.wait(_LOOK_S):
                    on_bytes(0)  # raises when it is time to stop
                    continue
                message, _ = self._channel.receive()
                match message:
                    case Question(what="turn", about=(_, sent_bytes)):
                        limiter.take(sent_bytes)
                        self._channel.send(Answer(message.number, self._newest()))
                    case Question(what="credentials", about=(refused,)):
                        self._channel.send(Answer(message.number, self._newest(refused)))
                    case Question(what="upload_id", about=(upload_id,)):
                        on_upload_id(upload_id)
                        self._channel.send(Answer(message.number, None))
                    case Question(what="part", about=(seq,)) if files is not None:
                        self._answer_part(message.number, files, seq)
                    case Question(what="frames", about=(first, last)):
                        batch = next(topic.inner.frame_batches(first, last))
                        self._channel.send(Answer(message.number, list(batch)))
                    case RequestDone():
                        limiter.answered(
                            message.method,
                            message.outcome,
                            message.elapsed_s,
                            message.sent_bytes,
                            message.received_bytes,
                        )
                    case FramesRead():
                        on_bytes(message.frame_bytes)
                    case Done():
                        if files is not None:
                            files.check()
                        return message
                    case Failed():
                        return message
        except EOFError as end:
            code = self._process.wait()
            raise _died(f"was killed by signal {-code}" if code < 0 else f"ended with {code}") from end

    def _newest(self, refused: str = "") -> FoundCredentials | None:
        return None if self._credentials is None else self._credentials.current(refused)

    def _answer_part(self, number: int, files: SealedFiles, seq: int) -> None:
        part = files.part(seq)
        if part is None:
            self._channel.send(Answer(number, None))
            return
        fields = Part(part.topic_id, part.first_seq, part.last_seq, part.paths)
        self._channel.send(Answer(number, fields), part.fds)


def _died(how: str) -> WorkerFailed:
    return WorkerFailed(f"the upload process {how}; the next try starts the upload again")
