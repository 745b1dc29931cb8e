"""What a terminal shows of the results of an operation. An operation prints through the `Output` of the command line.

With --json, each result is a line of JSON, and no text is printed.

**Previews** are what a command would take away: the result of `--dry-run`, and the text before the question.

**Units** are durations, sizes, counts and times as people write them: `90s`, `12h`, `7d`; `500000`, `64MB`, `1GiB`;
`none`. The first functions read what an option has, and the others make the text that a terminal shows.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from offload.errors import Misuse
from offload.moment import Moment
from seglog.base.dataclasses import dataclass
from seglog.base.errors import format_bytes as format_bytes  # the texts of errors have it too
from seglog.base.lazy import pattern

if TYPE_CHECKING:
    from offload.operations.command import Directory
    from offload.services.previews import Preview

_RANGES_SHOWN = 8
_LONG_AGO = timedelta(days=100)
_OPTIONAL = {"json": "optional"}  # `OPTIONAL` of offload.operations.result_json, which imports this module
_DURATIONS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}  # fmt: skip
_NUMBER = pattern(r"([1-9][0-9]{0,17}) ?([A-Za-z]*)", re.ASCII)


def parse_duration_ms(text: str) -> int | None:
    """Return a duration in milliseconds, or None for `none`."""
    return _parse(text, _DURATIONS_MS, "a duration such as 90s, 15m, 12h or 7d")


def parse_span_ms(option: str, text: str, other_forms: str = "") -> int:
    """Return a duration in milliseconds for an option that does not take `none`. An error names `other_forms`."""
    span_ms = parse_duration_ms(text)
    if span_ms is None:
        raise Misuse(f"{option} takes a duration such as 12h or 7d{other_forms}")
    return span_ms


def parse_span_s(option: str, text: str, other_forms: str = "") -> int:
    """Return a duration in whole seconds, for an option that keeps seconds. An error names `other_forms`."""
    seconds, rest_ms = divmod(parse_span_ms(option, text, other_forms), 1000)
    if rest_ms:
        raise Misuse(f"{option} takes whole seconds, at least 1s{other_forms}; {text} is not")
    return seconds


def parse_bytes(text: str) -> int | None:
    """Return a size in bytes, or None for `none`."""
    return _parse(text, _SIZES, "a size such as 500000, 64MB or 1GiB")


def parse_count(text: str) -> int | None:
    """Return a count, or None for `none`."""
    return _parse(text, {"": 1}, "a whole number from 1 on")


def _parse(text: str, units: dict[str, int], noun: str) -> int | None:
    if text == "none":
        return None
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] not in units:
        raise Misuse(f"{text!r} is not {noun}, nor none")
    return int(match[1]) * units[match[2]]


def time_ms(text: str | None) -> int | None:
    """Return the milliseconds since 1970 of an option, such as `15 minutes ago`. Raises `InvalidTarget`."""
    from catalog.errors import InvalidTarget
    from catalog.timeline import Time, parse_target
    from seglog import SystemClock

    if text is None:
        return None
    target = parse_target(text, now_ms=SystemClock().now_ms())
    if not isinstance(target, Time):
        raise InvalidTarget(text, "a time is needed here")
    return max(0, target.ms)  # nothing is older than 1970


def counted(count: int, noun: str = "record") -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def span_text(passed: timedelta) -> str:
    """Return a span of time such as `3 h 12 min`, with its two largest units."""
    seconds = round(abs(passed.total_seconds()))
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def ago_text(passed: timedelta) -> str:
    """Return a span of time such as `3 h 12 min ago`, or `in 3 h 12 min`."""
    return f"{span_text(passed)} ago" if passed >= timedelta(0) else f"in {span_text(passed)}"


def is_brief(output: Output | None) -> bool:
    """Return whether the reader is a person who did not ask for ids and full times."""
    return output is not None and output.is_rich and not output.is_verbose


def shown_time(output: Output | None, at: Moment) -> str:
    """Return a time as people read it on a terminal, such as `2 min ago` or `2026-11-21`, and in full elsewhere."""
    if not is_brief(output):
        return str(at)
    from seglog import SystemClock

    passed = timedelta(milliseconds=SystemClock().now_ms() - at)
    if abs(passed) >= _LONG_AGO:
        return str(at)[:10]
    count, unit, *_ = span_text(passed).split()
    return f"{count} {unit} ago" if passed >= timedelta(0) else f"in {count} {unit}"


def fitted(output: Output, text: str, indent: int = 0, taken: int = 0) -> str:
    """Return a text with its lines wrapped at words, as wide as the terminal. Elsewhere it stays as it is.

    The rest of a line stands `indent` cells deeper. `taken` cells of each line are for something else.
    """
    if not output.is_rich:
        return text
    import shutil
    import textwrap

    columns, lines = max(20, shutil.get_terminal_size().columns - taken), []
    for line in text.split("\n"):
        deeper = " " * (len(line) - len(line.lstrip()) + indent)
        lines.append(
            textwrap.fill(line, columns, subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False)
        )
    return "\n".join(lines)


class Output(Protocol):
    """Standard output: JSON with `is_json`, text with colours and tables with `is_rich`, else plain text.

    With `is_verbose`, a reader wants ids, epochs and bounds as well, and each time in full.
    """

    @property
    def is_json(self) -> bool: ...

    @property
    def is_rich(self) -> bool: ...

    @property
    def is_verbose(self) -> bool: ...

    def show(self, result: Any, text: str) -> None:
        """Print a result: `text` and a line feed, or its JSON. An empty text prints nothing."""

    def remark(self, text: str) -> None:
        """Print a line for people. With --json print nothing."""

    def note(self, text: str) -> None:
        """Print a line on standard error, also with --json."""

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table for people. Only a terminal gets one."""

    def write(self, data: bytes) -> None:
        """Print bytes as they are."""

    def flush(self) -> None:
        """Let the reader have what was printed so far."""


Printer = Callable[[Output, Iterator[Any], Mapping[str, Any]], None]
"""Prints the results of an operation as they come. The mapping has its arguments."""


def lines(text: Callable[[Any], str], note_of: Callable[[Any], str] = lambda _: "") -> Printer:
    """Return a printer that shows each result with `text`. What `note_of` returns goes to standard error first."""

    def print_lines(output: Output, results: Iterator[Any], _: Mapping[str, Any]) -> None:
        for result in results:
            if note := note_of(result):
                output.note(note)
            output.show(result, text(result))

    return print_lines


def rows(columns: Sequence[str], row: Callable[[Any], Sequence[str | Moment]], text: Callable[[Any], str]) -> Printer:
    """Return a printer that shows the results as a table on a terminal, without columns that have no cells.

    Elsewhere, and with --verbose, each result is a line with `text`.
    """
    print_plain = lines(text)

    def print_rows(output: Output, results: Iterator[Any], values: Mapping[str, Any]) -> None:
        if not is_brief(output):
            print_plain(output, results, values)
            return
        cells = [
            [shown_time(output, each) if isinstance(each, Moment) else each for each in row(one)] for one in results
        ]
        places = [place for place in range(len(columns)) if any(each[place] for each in cells)]
        if places:
            output.table([columns[place] for place in places], [[each[place] for place in places] for each in cells])

    return print_rows


@dataclass(frozen=True, slots=True)
class SeqRange:
    """The seqs from `first_seq` to `last_seq`."""

    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class WouldTake:
    """Records that `command` would take away, of about `of_records` live ones.

    `bytes` is about the size of the records. `deletes` counts local deletes that would go as well. `shown_by` are the
    branches and tags that would still show some of the records, or keep the objects of an erasure. A delete has the
    first hundred `ranges` of its seqs, the number of the others, and a `preview`, which names exactly these records.
    If a topic would go as well, `effect` says what becomes of it.
    """

    topic: str
    command: str
    records: int
    of_records: int
    bytes: int
    first_seq: int | None
    last_seq: int | None
    first_time: Moment | None
    last_time: Moment | None
    deletes: int
    shown_by: tuple[str, ...]
    ranges: tuple[SeqRange, ...] | None = field(default=None, metadata=_OPTIONAL)
    more_ranges: int | None = field(default=None, metadata=_OPTIONAL)
    preview: str | None = field(default=None, metadata=_OPTIONAL)
    effect: str | None = field(default=None, metadata=_OPTIONAL)

    @property
    def is_most(self) -> bool:
        """Return whether more than half of the records would go."""
        return 2 * self.records > self.of_records


def check_meant(effect: str, *, yes: bool, dry_run: bool) -> None:
    """Raise `Misuse` if the caller gives neither --yes nor --dry-run."""
    if not yes and not dry_run:
        raise Misuse(f"{effect}; say --yes to do it, or --dry-run to see what would go")


def would_take(
    directory: Directory,
    command: str,
    topic: str,
    *,
    start: int = 1,
    before: int | None = None,
    age_ms: int | None = None,
) -> WouldTake:
    """Return the preview for the records from `start` on, below `before`, older than `age_ms`."""
    from offload.services.previews import preview_here
    from seglog.values.deletes import DeleteWhere

    archive = directory.maybe_archive
    oldest_ms = None if age_ms is None else max(0, int(time.time() * 1000) - age_ms)
    if archive is None:
        handle = directory.log.get_topic(topic)
        before = before if oldest_ms is None else handle.seq_at(oldest_ms)
        return would(command, topic, preview_here(handle, DeleteWhere(before, start=start)))
    before = before if oldest_ms is None else archive.previews.seq_at(topic, oldest_ms)
    return would(command, topic, archive.previews.removal(topic, start=start, before=before))


def would(command: str, topic: str, preview: Preview) -> WouldTake:
    """Return the result of `--dry-run`."""
    going = preview.going
    first, last = going.first or (None, None), going.last or (None, None)
    return WouldTake(
        topic=topic,
        command=command,
        records=going.records,
        of_records=preview.of_records,
        bytes=going.size_bytes,
        first_seq=first[0],
        last_seq=last[0],
        first_time=None if first[1] is None else Moment(first[1]),
        last_time=None if last[1] is None else Moment(last[1]),
        deletes=preview.deletes,
        shown_by=preview.shown_by,
        effect=preview.effect,
    )


def taking_lines(text: Callable[[Any], str], note_of: Callable[[Any], str] = lambda _: "") -> Printer:
    """Return a printer as `lines` does. It also shows what a dry run found."""

    def text_of(result: Any) -> str:
        return would_take_text(result) if isinstance(result, WouldTake) else text(result)

    return lines(text_of, lambda result: "" if isinstance(result, WouldTake) else note_of(result))


def would_take_text(taking: WouldTake) -> str:
    if not taking.records:
        others = f": all are shown by {', '.join(taking.shown_by)}, too" if taking.shown_by else ""
        text = f"{taking.command} of {taking.topic} would take no record{others}"
    else:
        of = f"{taking.records:,} of about {counted(taking.of_records)}"
        span = f"seq {taking.first_seq} to {taking.last_seq}, {taking.first_time} to {taking.last_time}"
        text = f"{taking.command} of {taking.topic} would take {of}: {span}, about {format_bytes(taking.bytes)}"
    if taking.ranges and (len(taking.ranges) > 1 or taking.more_ranges):
        shown = [str(each.first_seq) + f"-{each.last_seq}" * (each.last_seq > each.first_seq) for each in taking.ranges]
        more = len(shown) - _RANGES_SHOWN + (taking.more_ranges or 0)
        text += f"\n  seqs: {', '.join(shown[:_RANGES_SHOWN])}{f', and {more:,} more ranges' if more > 0 else ''}"
    if taking.deletes:
        text += f"\n  and {counted(taking.deletes, 'delete')} that only this directory has"
    if taking.records:
        how = "kept" if taking.command.endswith("--erase") else "shown"
        text += f"\n  then {how} by: {', '.join(taking.shown_by) or 'no other branch or tag'}"
    if taking.effect:
        text += f"\n  {taking.effect}"
    return text
