"""The commands that the daemon runs for its clients: those of `offload.operations.command`.

    POST /topics/orders/rpc/offload      {"drop_hot": true}

A parameter has the name that it has in the code (`drop_hot`, `up_to`). The types of the command's function are the
schema of the request. The answer holds the results as JSON, one object a line. A client that shows them to people also
gets the fields for people, and the progress (`offload.operations.result_json`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import islice
from typing import Any, ClassVar

from catalog.objects.store_timeout import one_command
from catalog.refs.oplog import acting_for
from offload.archive import Archive
from offload.daemon.problems import RETRY_AFTER_S
from offload.daemon.scheduler.pressure import RESUME
from offload.daemon.service import Service
from offload.errors import Busy, OtherRemote, Stopping
from offload.handles import retry_if_moved
from offload.operations.command import Command, Directory, RequestsSeen, Tell, Work, with_branch
from offload.operations.result_json import json_line, message, progress_line
from seglog import Log, NoSuchTopic
from seglog.base.dataclasses import dataclass

_WAITING_LINES = 64
_WAITING_BYTES = 8 * 1024 * 1024
_PROGRESS_S = 0.2


def start(
    service: Service,
    command: Command,
    values: Mapping[str, Any],
    *,
    client: str = "",
    shows: Callable[[Any], bool] = lambda _: True,
    for_people: bool = False,
    remote: str | None = None,
    takes_lines: bool = False,
) -> Stream:
    """Run a command with its arguments in a thread of its own, and return the stream that carries its results.

    `client` is the name of the client's token, and `shows` returns whether the client may see a result. With
    `for_people`, the client shows the results to people. Call it in the event loop. Raises `Busy` if no thread is free.
    """
    stream = Stream()
    if not service.free_commands.acquire(blocking=False):
        raise Busy(RETRY_AFTER_S, "serve.max_requests, of commands")
    service.metrics.commands_running.inc()

    def work() -> None:
        if service.stopping.is_set():  # the command may have waited for its thread since then
            raise Stopping
        host = _Daemon(service, stream, tells_progress=for_people, takes_lines=takes_lines)
        part = _place(service, command, host, remote)
        with closing(_results(service.sync, command, part, values)) as results:
            for result in filter(shows, service.runs.counted(command, values, results)):
                stream.put(message(result) if for_people else json_line(result).encode())

    def run() -> None:
        error: BaseException | None = None
        try:
            with acting_for(client), one_command():
                work()
        except BaseException as raised:
            error = raised
        service.free_commands.release()
        service.metrics.commands_running.dec()
        stream.end(error)

    service.commands.submit(run)
    return stream


def _results(
    log: Log, command: Command, part: Log | Archive | Directory, values: Mapping[str, Any]
) -> Generator[Any, None, None]:
    """Yield the results of a command. If its topic leaves the log or comes there before the first result, it begins
    again, and finds the topic in the new place. A command may be repeated after it found no topic.
    """
    names = [with_branch(name, values.get("branch")) for name in command.topics(values)]

    def begun() -> tuple[list[Any], Generator[Any, None, None]]:
        results = command.run(part, values)
        return [*islice(results, 1)], results

    first, later = retry_if_moved(begun, lambda: _epochs(log, names), NoSuchTopic)
    with closing(later):
        yield from first
        yield from later


def _epochs(log: Log, names: Collection[str]) -> dict[str, int]:
    """Return the epoch of each topic, 0 for one that is not in the log; of all topics without names."""
    return {name: log.topic(name).epoch for name in names or log.topics()}


def _place(service: Service, command: Command, host: _Daemon, remote: str | None) -> Log | Archive | Directory:
    """Return the part of the daemon's directory that the command works on. Raises `NoRemote`, `OtherRemote`."""
    log, archive = service.sync, service.archive
    if command.works_on is Log:
        return log
    if remote is not None and (archive is None or remote.rstrip("/") != archive.url.rstrip("/")):
        raise OtherRemote("this directory, which a daemon serves,", remote, archive.url if archive else "none")
    directory = Directory(lambda: (log, archive), host)
    return directory if command.works_on is Directory else directory.archive


@dataclass(frozen=True, slots=True)
class _Daemon:
    """The daemon as the `Host` of a command."""

    service: Service
    stream: Stream
    tells_progress: bool
    takes_lines: bool
    serves_others: ClassVar[bool] = True

    @property
    def is_ending(self) -> bool:
        return self.service.stopping.is_set()

    def check_listener(self) -> None:
        self.stream.check()

    @contextmanager
    def progress(self, title: str, total_bytes: int | None) -> Iterator[Callable[[int], None]]:
        """Yield a function that sends the progress, if the client shows it, a few times a second at most."""
        if not self.tells_progress:
            yield lambda _: None
            return
        sender = _Told(self.stream)
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            sender.tell(title, total_bytes, done, "bytes")

        advance(0)
        yield advance
        sender.send()

    @contextmanager
    def phases(self) -> Iterator[Tell]:
        """Yield a function that sends the progress as `progress` does. Each phase is sent at its first progress."""
        if not self.tells_progress:
            yield lambda _title, _total, _done, _unit: None
            return
        sender = _Told(self.stream)
        yield sender.tell
        sender.send()

    def requests(self) -> RequestsSeen | None:
        return self.service.metrics.last_day.seen()

    def retry(self, name: str, /) -> None:
        self.service.works.retry(name)

    def work(self, name: str, /) -> Work | None:
        work, now_ms = self.service.works.of(name), self.service.now_ms()
        retry_in_s = work.wait_ms(now_ms) / 1000 if work.failures else None
        return Work(work.is_running, work.failures, work.last_error, retry_in_s, work.hint)

    def delivery_pause(self, priority: int, is_replica: bool, /) -> str | None:
        feeds = self.service.feeds
        ready = feeds.cold_ready if is_replica else feeds.ready
        if not ready.is_paused(priority):
            return None
        return f"its priority is {priority}, and the pressure is {ready.pressure:.2f}; it goes on below {RESUME}"


class _Told:
    """The progress of one operation, as lines of the kind `progress`. A slow client misses some of them."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._newest: tuple[str, int | None, int, str] | None = None
        self._next_s = 0.0

    def tell(self, title: str, total: int | None, done: int, unit: str) -> None:
        is_new = self._newest is None or self._newest[0] != title
        self._newest = (title, total, done, unit)
        now_s = time.monotonic()
        if is_new or now_s >= self._next_s:
            self._next_s = now_s + _PROGRESS_S
            self.send()

    def send(self) -> None:
        """Send the newest progress, if there is any."""
        if self._newest is not None:
            self._stream.offer(progress_line(*self._newest))


class Stream:
    """The results of one command, on their way from the command's thread to the event loop.

    The command's thread puts lines. The event loop, which makes the stream, takes them. If too many lines or bytes
    wait, `put` blocks the command's thread, and nothing else. The event loop waits for a line without a thread. `end`
    never blocks.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._lines: deque[bytes | None] = deque()
        self._waiting_bytes = 0
        self._room = threading.Condition()
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._is_abandoned = False

    def put(self, line: bytes) -> None:
        """Add a line. Raises `BrokenPipeError` if the stream is abandoned."""
        with self._room:
            self._room.wait_for(self._has_room)
        self.check()
        self._add(line)

    def offer(self, line: bytes) -> None:
        """Add a line, or drop it if the client is slow. Never blocks."""
        if len(self._lines) < _WAITING_LINES:
            self._add(line)

    def check(self) -> None:
        """Raise `BrokenPipeError` if the stream is abandoned."""
        if self._is_abandoned:
            raise BrokenPipeError

    def end(self, error: BaseException | None) -> None:
        self.error = error
        self._add(None)

    def abandon(self) -> None:
        """Let the command's thread know that the client has gone."""
        with self._room:
            self._is_abandoned = True
            self._room.notify_all()

    async def take(self) -> bytes | None:
        """Return the next line, and wait for it if there is none. Return None at the end."""
        while not self._lines:
            self._news.clear()
            await self._news.wait()
        with self._room:
            self._room.notify_all()
            line = self._lines.popleft()
            self._waiting_bytes -= len(line or b"")
            return line

    def _has_room(self) -> bool:
        is_full = len(self._lines) >= _WAITING_LINES or self._waiting_bytes >= _WAITING_BYTES
        return self._is_abandoned or not is_full

    def _add(self, line: bytes | None) -> None:
        with self._room:
            self._waiting_bytes += len(line or b"")
        self._lines.append(line)
        with suppress(RuntimeError):  # the loop has ended, so no reader is left
            self._loop.call_soon_threadsafe(self._news.set)
