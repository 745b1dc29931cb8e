"""Run a command: an operation in the daemon that holds the data directory, or else in this process.

A question comes before a command that takes something away:

    standard input and standard error    without --yes
    both are a terminal                  the command first runs with --dry-run, and then asks
    not a terminal                       the command refuses with exit code 2
    whatever, with `confirm = "never"`   no question

If more than half of a topic would go, the answer is its name. Otherwise it is `y` or `yes`.

`seglog status --watch` shows the status again and again.

**Times** as operators write them: `yesterday 14:05`, or `2026-11-20 14:05` in the zone of this machine.

    head, seq:N, lsn:N, tag:NAME, pin:NAME  no time, so the command gets the text as it is
    2026-11-21T09:30:00Z, +02:00            exact, so the command gets it as it is
    2026-11-20 14:05                        ISO 8601 without a zone: the local zone
    15 minutes ago                          counted from now
    yesterday 14:05, last friday            what `dateparser` understands, in the local zone, in the past

The command gets a time of the last three as a time in UTC. Without `--json`, a line on standard error tells that time,
so that the operator sees what the words were taken for. With `--strict-time`, a time needs its zone. This module knows
nothing of the catalog, so that a command which a daemon serves starts fast.

**Progress** shows on standard error, for work of over a second, and only on a terminal.

    the total is known      a bar with the count (bytes, topics, ...), rate and time left
    the total is unknown    the count, rate and time passed
    nothing is counted      the time passed

A bar of one operation hides while the command prints a result, and comes back with the next progress.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from offload.cli.session import Output, Session
from offload.cli.stdio import has_reader, write_error
from offload.errors import Misuse, NotConfirmed, no_such_file
from offload.operations.command import COMMANDS, Command, Directory, RequestsSeen, Tell, Work, command_of
from offload.operations.listed_command import ListedParameter
from offload.operations.printing import WouldTake, ago_text, would_take_text
from offload.operations.result_json import problem
from seglog.base.lazy import pattern
from seglog.interrupts import closed_after

if TYPE_CHECKING:
    from rich.progress import Progress

    from offload.archive import Archive
    from offload.operations.status import Shown
    from seglog import Log

SIMILAR = "similar: "
"""The begin of an error's note with the names that look like a wrong one."""
_AFTER_S = 1.0
_MOMENT_S = 0.2

_T = TypeVar("_T")


@contextmanager
def progress(title: str, total_bytes: int | None, *, is_shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of bytes done since its last call."""
    if not is_shown:
        yield lambda _: None
        return
    with closing(Bar(title, total_bytes)) as bar:
        yield bar.advance


def while_waiting(results: Iterator[_T], title: str, *, is_shown: bool) -> Iterator[_T]:
    """Yield the results. While the caller waits for one, show the time that passes and the number of results."""
    if not is_shown:
        yield from results
        return
    for count in itertools.count():
        with closing(Bar(f"{title}, {count} done" if count else title, None, unit=None)):
            try:
                result = next(results)
            except StopIteration:
                return
        yield result


def with_bars(run: Callable[[Tell], Iterator[_T]], *, is_shown: bool) -> Generator[_T, None, None]:
    """Yield the results of an operation that tells its progress, and show the progress between them."""
    with closing(ToldBars(is_shown=is_shown)) as bars:
        for result in run(bars.tell):
            bars.hide()
            yield result


class Bar:
    """The progress of one operation. It appears after a second, or after `after_s`, and goes away with `close`.

    `unit` is `bytes`, a noun such as `topics`, or None if nothing is counted. A thread shows the bar. So it lives on
    while the operation waits.
    """

    def __init__(
        self, title: str, total: int | None, *, unit: str | None = "bytes", after_s: float | None = None
    ) -> None:
        self._title = title
        self._total = total
        self._unit = unit
        self._done = 0
        self._lock = threading.Lock()
        self._is_due = False
        self._is_hidden = False
        self._is_closed = False
        self._shown: Progress | None = None
        self._timer = threading.Timer(_AFTER_S if after_s is None else after_s, self._appear_late)
        self._timer.daemon = True
        self._timer.start()

    def advance(self, count: int) -> None:
        self.tell(self._done + count)

    def tell(self, done: int) -> None:
        """Take the part that is done so far."""
        with self._lock:
            self._done, self._is_hidden = done, False
            self._appear()
            if self._shown is not None:
                self._shown.update(self._shown.task_ids[0], completed=done)

    def hide(self) -> None:
        """Leave the terminal to a result, until the next progress."""
        with self._lock:
            self._is_hidden = True
            if self._shown is not None:
                self._shown.stop()

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_closed = True
            if self._shown is not None:
                self._shown.stop()
                self._shown = None

    def _appear_late(self) -> None:
        with self._lock:
            self._is_due = True
            self._appear()

    def _appear(self) -> None:
        """Show the bar, or do nothing if it is shown already. The caller holds the lock."""
        if self._is_closed or self._is_hidden or not self._is_due:
            return
        if self._shown is None:
            from rich.console import Console
            from rich.progress import Progress

            from offload.cli.columns import progress_columns

            columns = progress_columns(self._total, self._unit)
            self._shown = Progress(*columns, console=Console(stderr=True), transient=True)
            self._shown.add_task(self._title, total=self._total, completed=self._done)
        self._shown.start()


class ToldBars:
    """The bars of an operation that tells its progress: one at a time, each with its own title.

    The first one appears after a second. From then on, a bar appears once its phase is more than a moment.
    """

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._begun_s = time.monotonic()
        self._phase: tuple[str, int | None, str] | None = None
        self._bar: Bar | None = None

    def tell(self, title: str, total: int | None, done: int, unit: str = "bytes") -> None:
        if not self._is_shown:
            return
        if self._bar is None or self._phase != (title, total, unit):
            self.close()
            after_s = max(_AFTER_S - (time.monotonic() - self._begun_s), min(_MOMENT_S, _AFTER_S))
            self._phase, self._bar = (title, total, unit), Bar(title, total, unit=unit, after_s=after_s)
        self._bar.tell(done)

    def hide(self) -> None:
        """Leave the terminal to a result, until the next progress."""
        if self._bar is not None:
            self._bar.hide()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


_NO_TIME = pattern(r"head(~[0-9]*)?|(seq|lsn|tag|pin):.*|[0-9]*", re.ASCII | re.DOTALL)
_AGO = pattern(r"([0-9]{1,9}) ?(s|m|h|d|w|seconds?|minutes?|hours?|days?|weeks?) ago", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TIMED = ("point", "target", "time")


class TimeNeedsZone(Exception):
    """With `--strict-time`, a time has no zone."""

    exit_code = 2
    hint = "write the zone, as in 2026-11-21T09:30:00Z or 2026-11-21T09:30:00+02:00"

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} has no zone, and --strict-time asks for one")


class Understood:
    """A text for the command, and a line about it for the operator, or ""."""

    __slots__ = ("note", "text")

    def __init__(self, text: str, note: str = "") -> None:
        self.text = text
        self.note = note


def understood_values(
    parameters: Sequence[ListedParameter], values: Mapping[str, object], *, is_strict: bool
) -> tuple[dict[str, object], list[str]]:
    """Return the values with their times in UTC, and the lines for the operator. Raises `TimeNeedsZone`."""
    understood_by_name = dict(values)
    notes: list[str] = []
    for parameter in parameters:
        text = values[parameter.name]
        if parameter.names not in _TIMED or not isinstance(text, str):
            continue
        topic, colon, target = text.partition(":") if parameter.names == "point" else ("", "", text)
        understood = understand(target, datetime.now(UTC), is_strict=is_strict)
        understood_by_name[parameter.name] = f"{topic}{colon}{understood.text}"
        notes += filter(None, [understood.note])
    return understood_by_name, notes


def understand(text: str, now: datetime, *, is_strict: bool) -> Understood:
    """Return the text that the command gets. A text that is no time stays, and the command refuses it."""
    if _NO_TIME.fullmatch(text):
        return Understood(text)
    try:
        moment = _moment(text, now, is_strict=is_strict)
        utc = None if moment is None else moment.astimezone(UTC)
    except (OverflowError, ValueError):  # before the year 1, or after 9999
        return Understood(text)
    if utc is None:
        return Understood(text)
    text_utc = utc.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return Understood(text_utc, f"{text!r} is {text_utc}, {ago_text(now - utc)}")


def _moment(text: str, now: datetime, *, is_strict: bool) -> datetime | None:
    """Return the time that a text means, or None if the command gets the text itself. Raises `TimeNeedsZone`."""
    if ago := _AGO.fullmatch(text):
        return now - timedelta(**{_UNITS[ago[2][0]]: int(ago[1])})
    try:
        exact = datetime.fromisoformat(text)
    except ValueError:
        guessed = _guessed(text, now)
        if is_strict and guessed is not None and guessed.tzinfo is None:
            raise TimeNeedsZone(text) from None
        return guessed
    if exact.tzinfo is not None:
        return None
    if is_strict:
        raise TimeNeedsZone(text)
    return exact


def _guessed(text: str, now: datetime) -> datetime | None:
    """Return what `dateparser` makes of a text, without a zone if the text has none. Past times come first."""
    import dateparser

    local = now.astimezone().replace(tzinfo=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python, about forms that dateparser tries
        moment: datetime | None = dateparser.parse(
            text, languages=["en"], settings={"PREFER_DATES_FROM": "past", "RELATIVE_BASE": local}
        )
    return moment


_WATCH_S = 2.0


def watch_status(output: Output, ask: Callable[[], Iterator[Shown]], values: Mapping[str, Any]) -> None:
    """Print the status again and again, on a terminal in the same place, until an interrupt or without a reader."""
    from offload.operations.status import print_status, status_text

    if not output.is_rich:
        while has_reader():
            print_status(output, ask(), values)
            output.flush()
            time.sleep(_WATCH_S)
        return
    from offload.cli.render import Screen, painted

    with closing(Screen()) as screen:
        while True:
            screen.show(painted(status_text(output, ask())))
            time.sleep(_WATCH_S)


def run_command(session: Session, path: str, values: Mapping[str, Any]) -> Callable[[], None]:
    """Import all that a command needs, and return the function that runs it."""
    command = command_of(path)
    show = command.show
    values = values if show is None else _with_texts(command, values)

    def run() -> None:
        if show is None:
            command.function(session, **values)
            return
        if values.get("watch"):
            _watch(session, command, values)
            return
        confirmed = _confirmed(session, command, values) if command.takes(values) else values
        with closed_after(results_of(session, command, confirmed, takes_lines=not session.as_json)) as results:
            ends_early = command.reads(confirmed) or bool(confirmed.get("follow"))
            waits = command.is_slow and not confirmed.get("follow")
            results_shown = while_waiting(results, command.path, is_shown=waits and session.shows_progress)
            show(session.output, _while_read(results_shown) if ends_early else results_shown, confirmed)

    def run_named() -> None:
        try:
            with session.paged() if command.is_long else nullcontext():
                run()
        except Exception as error:
            if names := _similar(session, error) if command.topics(values) else []:
                error.add_note(f"{SIMILAR}{', '.join(names)}")
            raise

    return run_named


def _similar(session: Session, error: Exception) -> list[str]:
    """Return the names that look like the topic or branch that an error misses, of those that the client may list."""
    from difflib import get_close_matches

    report = problem(error)
    if report["error"] not in ("NoSuchTopic", "NoSuchBranch"):
        return []
    topic, _, branch = report["message"].split()[2].partition("@")  # "no topic orders", "no branch orders@fix"
    names, branches = set[str](), set[str]()
    with suppress(Exception), reader_of(session) as ask:
        for each in ask("topic/list", {}):
            name, _, own = each.topic.partition("@")
            names.add(name)
            branches |= {own} if own and name == topic else set()
        if branch:
            branches |= {each.branch for each in ask("branch/list", {"topic": topic})}
    if topic in names or branches:
        return [f"{topic}@{each}" for each in get_close_matches(branch, branches)]
    return get_close_matches(topic, names)


def _watch(session: Session, command: Command, values: Mapping[str, Any]) -> None:
    """Print the status again and again. Each look opens the directory for itself, so it blocks no writer for long."""
    watch_status(session.output, lambda: results_of(session, command, values), values)


def results_of(
    session: Session, command: Command, values: Mapping[str, Any], *, takes_lines: bool = False
) -> Generator[Any, None, None]:
    """Run a command, and yield its results as they come. The data directory stays open until the generator ends.

    `takes_lines` says that the caller prints records as lines alone.
    """
    daemon = session.daemon()
    if daemon is not None:
        sent, finished = command.split(values)
        # If the client works on the results, it needs records.
        takes_lines = takes_lines and sent is values
        with closing(ToldBars(is_shown=session.shows_progress)) as bars:
            lines = daemon.results(command, sent, remote=session.remote, takes_lines=takes_lines, on_progress=bars.tell)
            for result in finished(lines):
                bars.hide()
                yield result
        return
    with _opened(session, command, read_only=command.reads(values), takes_lines=takes_lines) as directory:
        yield from command.run(directory, values)


@contextmanager
def reader_of(session: Session) -> Iterator[Callable[[str, Mapping[str, Any]], Iterator[Any]]]:
    """Yield a function that runs commands that only read, by their paths. They share one open data directory."""
    daemon = session.daemon()
    if daemon is not None:

        def ask(path: str, values: Mapping[str, Any]) -> Iterator[Any]:
            return daemon.results(COMMANDS[path], COMMANDS[path].arguments(values), remote=session.remote)

        yield ask
        return
    from offload.archive import Archive

    with directory_of(session, read_only=True) as directory:

        def run(path: str, values: Mapping[str, Any]) -> Iterator[Any]:
            command = COMMANDS[path]
            part = directory.archive if command.works_on is Archive else directory
            return command.run(part, command.arguments(values))

        yield run


@contextmanager
def _opened(
    session: Session, command: Command, *, read_only: bool, takes_lines: bool
) -> Iterator[Log | Archive | Directory]:
    """Yield the part of the data directory that the command works on."""
    from offload.archive import Archive
    from seglog import Log

    if command.works_on is Log:
        with session.log(read_only=read_only) as log:
            yield log
        return
    with directory_of(session, read_only=read_only, takes_lines=takes_lines) as directory:
        yield directory.archive if command.works_on is Archive else directory


@contextmanager
def directory_of(session: Session, *, read_only: bool = False, takes_lines: bool = False) -> Iterator[Directory]:
    """Yield the data directory. It opens at its first use, and closes at the end.

    `takes_lines` says that the caller prints records as lines alone.
    """
    with ExitStack() as stack:

        @functools.cache
        def opened() -> tuple[Log, Archive | None]:
            return stack.enter_context(session.log_and_maybe_archive(read_only=read_only))

        yield Directory(opened, _ThisProcess(session, takes_lines=takes_lines))


class _ThisProcess:
    """The command line as the `Host` of a command."""

    is_ending = False
    serves_others = False

    def __init__(self, session: Session, *, takes_lines: bool) -> None:
        self._session = session
        self.takes_lines = takes_lines

    def check_listener(self) -> None:
        """Do nothing: a write to a closed standard output fails by itself."""

    def progress(self, title: str, total_bytes: int | None) -> AbstractContextManager[Callable[[int], None]]:
        return progress(title, total_bytes, is_shown=self._session.shows_progress)

    @contextmanager
    def phases(self) -> Iterator[Tell]:
        with closing(ToldBars(is_shown=self._session.shows_progress)) as bars:
            yield bars.tell

    def requests(self) -> RequestsSeen | None:
        return None

    def retry(self, _name: str, /) -> None:
        raise Misuse(f"no daemon serves {self._session.directory}", hint="start one: seglog serve")

    def work(self, _name: str, /) -> Work | None:
        return None

    def delivery_pause(self, _priority: int, _is_replica: bool, /) -> str | None:
        return None


def _confirmed(session: Session, command: Command, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values to run the command with. Raises `NotConfirmed` if the answer is no."""
    if values["yes"] or values["dry_run"]:
        return values
    from offload.settings import NEVER

    if session.settings().cli.confirm == NEVER:
        return {**values, "yes": True}
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return values
    previews = list(results_of(session, command, {**values, "dry_run": True}))  # nothing is open during a question
    for preview in previews:
        _ask(preview)
    shown = {"preview": previews[-1].preview} if "preview" in values else {}
    return {**values, **shown, "yes": True}


def _ask(preview: WouldTake) -> None:
    write_error(would_take_text(preview) + "\n")
    if preview.is_most:
        write_error(f"This is more than half of {preview.topic}. Type its name to go on: ")
        answers = {preview.topic}
    else:
        write_error("Go on? [y/N] ")
        answers = {"y", "yes", "Y", "Yes"}
    if sys.stdin.readline().strip() not in answers:
        raise NotConfirmed(preview.topic)


def _with_texts(command: Command, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values, with the text of a file in the place of its path. Raises `Missing`, `Misuse`."""
    names = [name for name, option in command.parameters.items() if option.about.is_file and values[name] is not None]
    return {**values, **{name: _text_of(values[name]) for name in names}}


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise no_such_file(path) from None
    except UnicodeDecodeError:
        raise Misuse(f"{path} is not a text in UTF-8") from None


def _while_read(results: Iterator[Any]) -> Iterator[Any]:
    """Yield the results until the reader of the output has gone."""
    for result in results:
        yield result
        if not has_reader():
            return
