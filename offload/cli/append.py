"""The command `seglog append`.

After Ctrl-C or SIGTERM the batch on its way ends first, so that the command knows what is in, and how to continue.
"""

from __future__ import annotations

import io
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, BinaryIO, TypeVar

from offload.cli.execution import directory_of, progress
from offload.cli.session import Session
from offload.cli.stdio import SIGNALS, is_raised, stop_of
from offload.cli.stopped import told
from offload.errors import InvalidInput, Misuse, no_such_file
from offload.operations import append as use
from offload.operations.append import Appended, Format, RecordSink
from offload.operations.command import About, Command, TopicName
from offload.operations.printing import counted
from offload.operations.record_text import Batch
from offload.operations.result_json import PartlyDone, problem
from seglog.base.dataclasses import dataclass
from seglog.errors import AppendsHeld

_T = TypeVar("_T")


class Interrupts:
    """A context in which a signal waits for `check`. A second one does not wait.

    No signal waits before `during` begins, nor while the input is being read. After the last item a signal stops
    nothing any more, because all of the input is in.
    """

    def __init__(self) -> None:
        self.is_orderly = True
        self._is_reading = True
        self._waiting: int | None = None
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in filter(is_raised, SIGNALS):
                self._former[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    def during(self, source: Iterable[_T]) -> Iterator[_T]:
        """Yield the items of the input. A signal while the caller waits for one raises at once."""
        items = iter(source)
        while True:
            self._is_reading = True
            self.check()
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                self._is_reading = False
            yield item

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if a signal waits."""
        if self._waiting is not None:
            raise stop_of(self._waiting)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if not self._is_reading and self._waiting is None:
            self._waiting = number
            return
        self.is_orderly = self._is_reading
        raise stop_of(number)


_NOTHING = "; nothing was appended"
_UNUSED = "ts_ms was not used: --keep-times keeps it"


def append(
    session: Session,
    topic: TopicName,
    file: Annotated[
        Path | None, About("The file to append; standard input without it.", is_argument=True, shown_default="-")
    ] = None,
    input_format: Annotated[
        Format, About("lines: a record a line, byte-exact. jsonl: objects with value, tag, node.", "--format")
    ] = Format.LINES,
    tag: Annotated[str | None, About("A tag for the records, to delete or read them by.")] = None,
    node: Annotated[str | None, About("The origin of the records.")] = None,
    durability: Annotated[
        str | None, About("fsync, disk or memory, instead of the topic's own. Not ephemeral: this process ends.")
    ] = None,
    skip_lines: Annotated[
        int, About("Leave out so many lines at the start, to continue after an error or Ctrl-C.", least=0)
    ] = 0,
    keep_times: Annotated[bool, About("With jsonl: the records get the ts_ms of their lines, which ascend.")] = False,
    follow: Annotated[
        bool, About("Wait for more lines of FILE without end, over its rotations. Each line is there once.")
    ] = False,
    state: Annotated[
        Path | None, About("With --follow: the file for the place in FILE.", shown_default="FILE.seglog")
    ] = None,
) -> None:
    """Append lines of a file or of standard input. The command prints their seqs.

    No byte changes: `seglog append t FILE` and `seglog read t` give FILE again, whatever its line ends.
    With --follow, the command begins with the start of FILE, and later goes on where it ended, also after a kill.
    Example: seglog append access /var/log/nginx/access.log --tag web1
    Example: seglog append access --follow /var/log/nginx/access.log --state /var/lib/seglog/access.place
    """
    if keep_times and input_format != Format.JSONL:
        raise Misuse("--keep-times needs --format jsonl, because lines have no times")
    if follow:
        if file is None or str(file) == "-" or skip_lines:
            raise Misuse("--follow needs a FILE, and takes no --skip-lines")
        kept = file.with_name(f"{file.name}.seglog") if state is None else state
        _follow(session, topic, file, kept, (Format(input_format), tag, node), durability, keep_times)
        return
    if state is not None:
        raise Misuse("--state is for --follow")
    other_format = None if input_format == Format.LINES else str(input_format)
    options = {"format": other_format, "tag": tag, "node": node, "durability": durability}
    reached = _Reached(_Resume(topic, "-" if file is None else str(file), options, skip_lines, keep_times))
    with told(reached.text), reached.interrupts:
        with _stream(file) as (stream, size), _sink(session, topic, durability, keep_times) as sink:
            batches = use.batches(
                stream,
                Format(input_format),
                tag=tag,
                node=node,
                max_record_bytes=session.log_settings().max_record_bytes,
                is_file=size is not None,
                skip_lines=skip_lines,
                times_from=getattr(sink, "last_ts_ms", 0) if keep_times else None,
            )
            with progress(f"append {topic}", size, is_shown=session.shows_progress) as advance:
                done = _append(sink, topic, _advancing(batches, advance), durability, reached)
        if done.has_unused_times:
            session.output.note(_UNUSED)
        seqs = f", seq {done.first_seq} to {done.last_seq}" if done.appended else ""
        session.output.show(done, f"appended {counted(done.appended)} to {topic}{seqs}")


def _follow(
    session: Session,
    topic: str,
    file: Path,
    state: Path,
    form: tuple[Any, ...],
    durability: str | None,
    keep_times: bool,
) -> None:
    """Append the lines of a growing file until a signal or an error ends that."""
    from uuid import uuid4

    from offload.operations.growing_file import GrowingFile, Place, PlaceFile

    longest, count = session.log_settings().max_record_bytes, 0
    kind, tag, node = form
    if not file.is_file() and not state.exists():
        raise no_such_file(file)

    def batches_of(lines: bytes) -> Iterator[Batch]:
        options: dict[str, Any] = {"tag": tag, "node": node, "max_record_bytes": longest, "is_file": False}
        return use.batches(io.BytesIO(lines), kind, **options, times_from=0 if keep_times else None)

    places, interrupts = PlaceFile(state), Interrupts()
    place = places.load(topic)
    if place is None:
        found = file.stat()
        place = Place(topic, f"follow-{uuid4().hex}", inode=(found.st_dev, found.st_ino))
        places.save(place)
    line = lambda: f"interrupted: {counted(count)} were appended; the same command goes on behind them"  # noqa: E731
    with told(line), interrupts, _sink(session, topic, durability, keep_times) as sink:
        note = session.output.note
        growing = GrowingFile(file, longest, note)
        follower = use.Follower(sink, growing, places, place, batches_of, note, durability, keep_times)
        for batch in interrupts.during(follower.batches()):
            if batch.times_ms and not keep_times and not count:
                note(_UNUSED)
            count += len(follower.append(batch, interrupts.check))


@dataclass(frozen=True, slots=True)
class _Resume:
    """The words of this command, and the place in the input where it began. The value of an absent option is None."""

    topic: str
    file: str
    options: Mapping[str, str | None]
    skipped: int
    keeps_times: bool

    def command(self, done: Appended) -> str:
        """Return the command that appends the rest. Its records get the same labels and the same durability."""
        words = ["seglog", "append", self.topic, self.file]
        for name, value in self.options.items():
            if value is not None:
                words += [f"--{name}", value]
        words += ["--keep-times"] if self.keeps_times else []
        words += ["--skip-lines", str(self.skipped + done.line_count)]
        return " ".join(map(shlex.quote, words))


@dataclass(slots=True)
class _Reached:
    """How far the appends came. `done` is None before the first batch."""

    resume: _Resume
    done: Appended | None = None
    interrupts: Interrupts = field(default_factory=Interrupts)

    def text(self) -> str:
        """Say what is in after a signal, and how to continue."""
        return f"interrupted: {self._reached()}"

    def _reached(self) -> str:
        look = f"`seglog topic show {self.resume.topic}` names the last one"
        if self.done is not None and self.done.last_seq:
            unsure = "" if self.interrupts.is_orderly else f"at least; {look}; then "
            return f"{_seqs(self.done)} were appended, {unsure}continue with `{self.resume.command(self.done)}`"
        if self.interrupts.is_orderly:
            return "nothing was appended"
        return f"some records may be appended; {look}"


def _append(
    sink: RecordSink, topic: str, batches: Iterator[Batch], durability: str | None, reached: _Reached
) -> Appended:
    """Append the batches, and return the total. If an error ends this early, say how far the appends came."""
    done: Appended | None = None
    try:
        keeps_times = reached.resume.keeps_times
        for done in use.append(sink, topic, reached.interrupts.during(batches), durability, keeps_times):
            reached.done = done
            reached.interrupts.check()
    except Exception as error:
        if done is None or not done.last_seq:
            raise
        raise _partial(error, done, reached.resume) from error
    assert done is not None  # noqa: S101 - there is a total before the first batch
    return done


def _seqs(done: Appended) -> str:
    return f"seq {done.first_seq} to {done.last_seq}"


def _partial(error: Exception, done: Appended, resume: _Resume) -> PartlyDone:
    """Return the error of an input of which a part is in.

    An error that says "nothing was appended" means the last batch. So does an error of the input. After another error,
    the outcome of the last batch is unknown.
    """
    report = problem(error)
    message = report["message"].replace(_NOTHING, "")
    head = f"{report['hint']}; then " if "hint" in report else ""
    if _NOTHING in report["message"] or isinstance(error, InvalidInput | AppendsHeld):
        message += f"; {_seqs(done)} were appended, the rest was not"
    else:
        message += f"; {_seqs(done)} were appended before"
        head += f"look how far the appends came with `seglog topic show {resume.topic}`, and "
    return PartlyDone(message, report["exit_code"], hint=f"{head}continue with `{resume.command(done)}`")


def _advancing(batches: Iterator[Batch], advance: Callable[[int], None]) -> Iterator[Batch]:
    """Yield the batches. When the caller asks for the next one, the one before is done."""
    for batch in batches:
        yield batch
        advance(batch.size_bytes)


@contextmanager
def _stream(file: Path | None) -> Iterator[tuple[BinaryIO, int | None]]:
    """Yield the input and its size. The size is None if the input is not a regular file. Raises `Missing`."""
    if file is None or str(file) == "-":
        yield sys.stdin.buffer, None
        return
    with _opened(file) as stream:
        yield stream, file.stat().st_size if file.is_file() else None


def _opened(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise no_such_file(file) from None


@contextmanager
def _sink(session: Session, topic: str, durability: str | None, keep_times: bool) -> Iterator[RecordSink]:
    """Yield the topic that takes the records. While a daemon holds the directory, the daemon appends them."""
    daemon = session.daemon()
    if daemon is not None:
        if keep_times:
            raise Misuse("a daemon gives records its own times: stop it, then repeat with --keep-times")
        yield daemon.topic(topic)
        return
    with directory_of(session) as directory:
        yield use.open_sink(directory, topic, durability)


APPEND = Command("append", append, section="everyday")
