"""Test reads with conditions: the index leaves chunks out, and no record that matches."""

from __future__ import annotations

import io
import json
import random
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from offload.errors import Misuse
from offload.operations.command import COMMANDS, Directory
from offload.operations.matching import match_of
from offload.operations.pruning import ReadStats
from offload.operations.result_json import message, result_of
from seglog import Gap, Log, Record, TopicConfig
from seglog.errors import SeqOutOfRange
from seglog.files.clock import SystemClock
from tests.offload.replicas import opened

TAGS = (None, "web1", "web2", "db")


class _Clock(SystemClock):
    """A clock that is a second later at each look."""

    now = 1_700_000_000_000

    def now_ms(self) -> int:
        self.now += 1000
        return self.now


class _Host:
    serves_others = False
    takes_lines = False

    def check_listener(self) -> None:
        pass


@pytest.fixture
def opened_directory(tmp_path: Path) -> Iterator[tuple[Log, Archive]]:
    """Twelve segments of a tag each, with a delete and an eviction. The hot copies of most are gone."""
    rng = random.Random(7)
    with opened(tmp_path / "data", MemoryStore(), _Clock()) as (log, archive):
        topic = archive.open_for_append("t")
        for number in range(12):
            tag = TAGS[number % 4]
            topic.append([b"value %d" % rng.randrange(100) for _ in range(rng.randrange(5, 30))], tag=tag)
            topic.seal()
            archive.offload("t", drop_hot=number == 8)
            if number == 5:
                archive.delete("t", tag="db")
                archive.evict("t", 12)
        archive.restore("t", to="lsn:6", name="b")
        topic.append([b"value 7", b"tail"], tag="web1")
        yield log, archive


def _read(log: Log, archive: Archive | None, **given: Any) -> list[Any]:
    command, host = COMMANDS["read"], _Host()
    place = Directory(lambda: (log, archive), host)  # type: ignore[arg-type]
    results = command.run(place, command.arguments({"topic": "t", **given}))
    return [item for each in results for item in ([each] if isinstance(each, ReadStats) else each.items)]


def test_a_read_with_conditions_finds_what_a_look_at_each_record_finds(
    opened_directory: tuple[Log, Archive],
) -> None:
    log, archive = opened_directory
    rng = random.Random(3)
    skipped = 0
    assert log.topic("t").inner.hot_floor > 100
    for topic, at in (("t", None), ("t", "head~1"), ("t", "lsn:5"), ("t", "seq:60"), ("t@b", None), ("t@b", "lsn:3")):
        whole = [item for item in _read(log, archive, topic=topic, at=at) if isinstance(item, Record)]
        first, last = whole[0].seq, whole[-1].seq
        for _ in range(12):
            since, until = sorted(rng.choice(whole).ts_ms for _ in range(2))
            tag = rng.choice(["web1", "web*", "db", "none", None])
            start, end = sorted(rng.randint(first, last) for _ in range(2))
            given = rng.choice([{"start": start, "end": end}, {"start": start}, {}])
            *found, stats = _read(
                log,
                archive,
                topic=topic,
                at=at,
                since=_utc(since),
                until=_utc(until),
                tag=tag,
                grep="7$",
                stats=True,
                **given,
            )
            wanted = [
                record
                for record in whole
                if since <= record.ts_ms <= until
                and (tag is None or record.tag == tag or (tag == "web*" and (record.tag or "").startswith("web")))
                and record.value.endswith(b"7")
                and given.get("start", 0) <= record.seq <= given.get("end", last)
            ]
            assert [item for item in found if isinstance(item, Record)] == wanted
            assert stats.records <= len(whole)
            skipped += stats.chunks_skipped + stats.segments_skipped
    assert skipped > 100


def _utc(ts_ms: int) -> str:
    from offload.moment import format_time

    return format_time(ts_ms)


def test_the_counts_say_what_was_left_out(opened_directory: tuple[Log, Archive]) -> None:
    log, archive = opened_directory
    *found, stats = _read(log, archive, at="lsn:5", tag="web2", stats=True)
    assert {record.tag for record in found} == {"web2"}
    assert (stats.chunks_read, stats.chunks_skipped, stats.segments_skipped) == (1, 4, 0)
    assert stats.records == len(found)
    first = found[0]
    *found, stats = _read(log, archive, at="lsn:5", until=_utc(first.ts_ms - 1), stats=True)
    assert (stats.chunks_read, stats.segments_skipped) == (2, 3)
    *found, stats = _read(log, archive, at="lsn:5", limit=1, stats=True)
    assert (len(found), stats.chunks_read) == (1, 1)
    assert _read(log, None, stats=True, start=log.topic("t").head_seq)[-1] == ReadStats(0, 0, 0, 1)


def test_a_client_that_stops_at_its_limit_has_the_counts_up_to_there(opened_directory: tuple[Log, Archive]) -> None:
    command, host = COMMANDS["read"], _Host()
    place = Directory(lambda: opened_directory, host)  # type: ignore[arg-type]
    for given in ({"limit": 2}, {"limit": 2, "stats": True}, {"stats": True}):
        values = command.arguments({"topic": "t", "at": "lsn:5", "grep": "7$", **given})
        for_daemon, finished = command.split(values)
        sent = [(type(each), io.BytesIO(message(each))) for each in command.run(place, for_daemon)]
        *found, last = finished(result_of(kind, json.loads(line.readline()), line.read) for kind, line in sent)
        items = [item for batch in found for item in batch.items]
        if "stats" not in given:
            assert (len(found), len(last.items)) == (0, 2)
        elif "limit" in given:
            assert (len(items), last) == (2, ReadStats(5, 0, 0, last.records))
            assert last.records >= items[-1].seq - items[0].seq + 1
        else:
            assert len(items) > 2
            assert isinstance(last, ReadStats)


def test_evicted_records_are_named_and_wrong_starts_are_refused(opened_directory: tuple[Log, Archive]) -> None:
    log, archive = opened_directory
    assert _read(log, archive, start=3, tag="none") == [Gap(3, 11)]
    assert _read(log, archive, start=3, end=8, tag="none") == [Gap(3, 8)]
    for given in ({"start": 999}, {"start": 999, "at": "lsn:5"}, {"start": 0, "tag": "web1"}):
        with pytest.raises(SeqOutOfRange):
            _read(log, archive, stats=True, **given)


@pytest.mark.parametrize("at", ["head", "head~0", "head~00"])
def test_a_read_of_the_newest_state_shows_no_expired_record_however_the_state_is_written(
    tmp_path: Path, at: str
) -> None:
    clock = _Clock()
    with opened(tmp_path / "data", MemoryStore(), clock) as (log, archive):
        log.create_topic("t", TopicConfig(ttl_ms=3_600_000, keep_history=True))
        for value in (b"old", b"new"):
            archive.open_for_append("t").append([value])
            log.topic("t").seal()
            archive.offload("t")
            clock.now += 2_000_000
        for given in ({}, {"stats": True}):
            found = _read(log, archive, at=at, **given)
            assert [item.value for item in found if isinstance(item, Record)] == [b"new"]


@pytest.mark.parametrize(
    ("grep", "fixed", "matching"),
    [
        (r"\xff", False, [b"\xff\x00"]),
        ("^a.c$", False, [b"a.c", b"abc"]),
        ("a.c", True, [b"a.c"]),
        ("ä", False, ["ä".encode()]),
        ("", False, [b"a.c", b"abc", b"\xff\x00", "ä".encode()]),
        (r"(a)bc|\A\xff", False, [b"abc", b"\xff\x00"]),
    ],
)
def test_a_pattern_is_about_bytes(grep: str, fixed: bool, matching: list[bytes]) -> None:
    match = match_of(None, None, None, grep, fixed=fixed)
    values = [b"a.c", b"abc", b"\xff\x00", "ä".encode()]
    assert [value for value in values if match.fits(Record(1, 1, value))] == matching


@pytest.mark.parametrize(
    "given",
    [
        {"grep": "("},
        {"fixed": True},
    ],
)
def test_wrong_conditions_are_refused_before_the_directory_is_used(given: dict[str, Any]) -> None:
    def unusable() -> tuple[Log, Archive | None]:
        pytest.fail("the command used the data directory")

    host: Any = _Host()
    with pytest.raises(Misuse):
        list(COMMANDS["read"].run(Directory(unusable, host), COMMANDS["read"].arguments({"topic": "t", **given})))


def test_re2_matches_if_it_is_installed_and_knows_the_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    class Options:
        Encoding = types.SimpleNamespace(LATIN1="latin-1")

    class Refused(Exception):
        pass

    def compiled(pattern: bytes, options: Any) -> Any:
        asked.append(pattern)
        if b"(?=" in pattern:
            raise Refused
        assert (options.encoding, options.log_errors) == ("latin-1", False)
        return types.SimpleNamespace(search=lambda value: value == b"re2")

    module = types.SimpleNamespace(Options=Options, compile=compiled, error=Refused)
    monkeypatch.setitem(sys.modules, "re2", module)  # type: ignore[arg-type]
    for pattern, fits in (("x", b"re2"), ("x(?=y)", b"xy")):
        match = match_of(None, None, None, pattern, fixed=False)
        assert match.fits(Record(1, 1, fits))
        assert not match.fits(Record(1, 1, b"x"))
    assert asked == [b"x", b"x(?=y)"]


def test_the_real_re2_finds_the_same_as_re() -> None:
    pytest.importorskip("re2")
    values = [bytes([byte]) for byte in range(256)]
    values += [b"", b"order 7", b"7\n", b"a\nb", b"aab", b"a{,2}b", b"12ms", b"\xff\xfe", "\u00e9".encode()]
    patterns = [
        "7$",
        "^$",
        r"\s",
        r"\S",
        r"\bx",
        "(?i)\udce9",
        "(?i)k",
        ".",
        r"[\x80-\xff]",
        r"\d+ms",
        "(?s)a.b",
        "(?m)^b$",
    ]
    patterns += [r"\w", r"\W", "(?P<n>a)a", "\0", "[^a]", "\u00e9", "a{,2}b", r"(a)\1", "a(?=b)", r"a\Z"]
    known = {("7$", b"7\n"), ("^$", b"\n"), (r"\s", b"\v"), (r"\S", b"\v")}  # docs/cli.md names them
    differing = set()
    for pattern in patterns:
        fits = match_of(None, None, None, pattern, fixed=False).fits
        search = re.compile(pattern.encode("utf-8", "surrogateescape")).search
        differing |= {(pattern, value) for value in values if fits(Record(1, 1, value)) != bool(search(value))}
    assert differing == known


def test_the_real_re2_ends_where_re_takes_very_long() -> None:
    pytest.importorskip("re2")
    assert not match_of(None, None, None, "(a+)+$", fixed=False).fits(Record(1, 1, b"a" * 5000 + b"b"))


def test_a_daemon_leaves_regular_expressions_to_its_client(
    opened_directory: tuple[Log, Archive], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)  # type: ignore[arg-type]
    log, archive = opened_directory
    read = COMMANDS["read"]

    class Daemon(_Host):
        serves_others = True

    def run(**given: Any) -> list[Any]:
        """Do what the command line does with a daemon."""
        place = Directory(lambda: (log, archive), Daemon())  # type: ignore[arg-type]
        for_daemon, finished = read.split(read.arguments({"topic": "t", **given}))
        return list(finished(read.run(place, for_daemon)))

    def items(results: list[Any]) -> list[Any]:
        return [item for each in results if not isinstance(each, ReadStats) for item in each.items]

    for given in ({"grep": "7$"}, {"grep": "7$", "limit": 3}, {"grep": "e 7", "fixed": True}, {"tag": "web1"}):
        assert items(run(**given)) == _read(log, archive, **given)
    assert items(run(grep="7$", start=3)) == _read(log, archive, grep="7$", start=3)
    assert isinstance(run(grep="7$", stats=True)[-1], ReadStats)
    with pytest.raises(Misuse):
        run(grep="(")
    place = Directory(lambda: (log, archive), Daemon())  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="only for RE2"):
        list(read.run(place, read.arguments({"topic": "t", "grep": "7$"})))


def test_a_limit_gives_the_first_records_of_the_range(opened_directory: tuple[Log, Archive]) -> None:
    log, archive = opened_directory
    head_seq = log.topic("t").head_seq
    records = [each for each in _read(log, archive) if isinstance(each, Record)]
    for limit in (1, 3, 8, 9):
        for start in (None, 1, 12, 13, head_seq - 12, head_seq - 3, head_seq):
            for end in (None, head_seq - 1, head_seq):
                if start is None or end is None or start <= end:
                    found = _read(log, archive, start=start, end=end, limit=limit)
                    wanted = [each for each in records if (start or 1) <= each.seq <= (end or head_seq)][:limit]
                    assert [each for each in found if isinstance(each, Record)] == wanted
