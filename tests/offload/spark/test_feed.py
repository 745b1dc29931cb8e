"""Test the feed of changes without Spark: a copy that applies it shows what a read shows, at each LSN."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from catalog.errors import OutOfWindow
from catalog.format.commit import ForkPoint, SegmentView
from catalog.format.ids import Vid
from catalog.refs.branch import Branches
from offload.archive import Archive
from offload.errors import InvalidOption
from offload.spark.offsets import Misuse
from offload.spark.options import parse_options
from offload.spark.pin import Pin, PinnedTopic
from offload.spark.query_plan import Query, Remote
from offload.spark.task import Needs
from offload.wiring import open_store
from seglog import Log
from seglog.errors import SeglogError
from tests.offload.replicas import opened, ship
from tests.offload.samples import Sample
from tests.offload.spark import archives
from tests.offload.spark.archives import NOW_MS, TopicArchive
from tests.offload.spark.follower import Follower, remote, samples, url
from tests.offload.spark.queries import planned, read, rows_of
from tests.work import amounts, seed_of, tell

__all__ = ["remote", "url"]

pytestmark = pytest.mark.usefixtures("no_pauses")

Row = dict[str, Any]
Copy = dict[int, tuple[bytes, str | None, int]]
REMOVALS = {"delete", "truncate", "evict"}


def feed(url: str, **options: object) -> list[Row]:
    return read(url, readChangeFeed="true", **options)


def changes(rows: list[Row]) -> list[tuple[int, str, int]]:
    """Return LSN, kind and seq of each row."""
    return [(row["_lsn"], row["_change"], row["seq"]) for row in rows]


def between(url: str, since: ForkPoint, end: ForkPoint) -> list[Row]:
    """Return the rows of the feed after one state, up to another."""
    options = parse_options({"path": url, "topic": "t", "readChangeFeed": "true"})
    return rows_of(options, at=Pin(0, (PinnedTopic("t", "main", end, since),)))


def apply(copy: Copy, rows: list[Row], *, is_crossing: bool = False) -> None:
    """Apply the rows of one commit, each of which must fit the copy."""
    assert len({row["seq"] for row in rows}) == len(rows)
    for row in rows:
        seq = row["seq"]
        if row["_change"] in REMOVALS:
            del copy[seq]
            assert {name for name, value in row.items() if value is not None} == {"topic", "seq", "_change", "_lsn"}
        else:
            assert is_crossing or seq not in copy
            copy[seq] = row["value"], row["tag"], round(row["timestamp"].timestamp() * 1000)


def shown(remote: Remote, point: ForkPoint) -> Copy:
    """Return the records that a read of that state shows."""
    snapshot = remote.volumes.snapshot(point.vid, point.lsn, point.seq)
    records = remote.reader.records(snapshot, 1, snapshot.bounds.head_seq)
    return {record.seq: (record.value, record.tag, record.ts_ms) for record in records}


class History:
    """A topic `t` with a random past, and the states that its name led to, oldest first."""

    def __init__(self, draw: random.Random, log: Log, archive: Archive, remote: Remote) -> None:
        self.draw, self.log, self.archive, self.remote = draw, log, archive, remote
        self.branches = Branches(remote.volumes)
        self.points: list[ForkPoint] = []
        self.removals: list[int] = []
        self.value = 0
        self.made: Counter[str] = Counter()

    def step(self) -> str:
        """Change something, and note each new state of the topic."""
        does = self.draw.choice(
            (self.append,) * 5 + (self.delete,) * 4 + (self.undo,) * 3
            + (self.truncate, self.evict, self.rewrite, self.take_back, self.collect) + (self.branch, self.promote) * 2
        )  # fmt: skip
        with suppress(SeglogError):  # not each change is possible at each moment
            does()
            self.made[does.__name__] += 1
        vid = self.branches.resolve("t", "main")
        newest, [before] = self.remote.volumes.newest_lsn(vid), self.points[-1:] or [None]
        known = before.lsn if before is not None and before.vid == vid else newest - 1
        self.points += [ForkPoint(vid, lsn) for lsn in range(known + 1, newest + 1)]
        return does.__name__

    def _batch(self) -> list[bytes]:
        self.value += 1
        return [b"%d" % self.value] * self.draw.randrange(1, 5)

    def append(self) -> None:
        name = self.draw.choice(("t", "t", "t@b"))
        for _ in range(self.draw.randrange(1, 3)):
            self.archive.open_for_append(name).append(self._batch(), tag=self.draw.choice(("x", "y", None)))
        if self.draw.random() < 0.4:  # is deleted before it is offloaded
            self.log.topic(name).delete(tag="x")
        if self.draw.random() < 0.8:
            ship(self.archive, self.log, name, *self._batch(), tag="z")

    def delete(self) -> None:
        head = self.archive.history.snapshot("t").bounds.head_seq
        seq = self.draw.randrange(1, head + 2)
        which = self.draw.choice(({"tag": "x"}, {"before": min(seq, 6)}, {"seqs": [seq, seq + 1]}, {"tag": "z"}))
        self.note(self.archive.delete("t", **which).lsn)

    def note(self, lsn: int | None) -> None:
        self.removals += [] if lsn is None else [lsn]

    def undo(self) -> None:
        if self.removals:
            lsn = self.draw.choice(self.removals[-3:])
            self.archive.history.undo_removal("t", lsn, partial=True)

    def truncate(self) -> None:
        head = self.archive.history.snapshot("t").bounds.head_seq
        self.note(self.archive.truncate("t", max(1, head - self.draw.randrange(6))).lsn)

    def evict(self) -> None:
        self.note(self.archive.evict("t", self.draw.randrange(2, 6)).lsn)

    def rewrite(self) -> None:
        (self.archive.upkeep.erase if self.draw.random() < 0.7 else self.archive.upkeep.compact)("t")

    def branch(self) -> None:
        history = self.archive.history.commits("t")
        self.archive.restore("t", to=f"head~{self.draw.randrange(len(history))}", name="b")

    def promote(self) -> None:
        self.archive.branches.promote_branch("t", "b", keep=f"kept{self.value}", leave=True)

    def take_back(self) -> None:
        self.archive.history.undo()

    def collect(self) -> None:
        """Collect all but the newest states, sometimes: otherwise little is left to compare."""
        if self.draw.random() < 0.3:
            _collect(self.archive)


@amounts(2, all=30, soak=4_000, part=9, slices=10)
def test_a_copy_that_applies_the_feed_shows_each_state(tmp_path: Path, amount: int) -> None:
    seen: Counter[str] = Counter()
    for number in range(amount):
        draw = random.Random(f"{seed_of('feeds of changes')} {number}")
        folder = tmp_path / str(number)
        (folder / "remote").mkdir(parents=True)
        url = (folder / "remote").as_uri()
        with (
            closing(Remote.open(url)) as remote,
            closing(open_store(url)) as store,
            opened(folder / "log", store) as (log, archive),
        ):
            ship(archive, log, "t", b"first", b"second", tag="x")
            history = History(draw, log, archive, remote)
            steps = [history.step() for _ in range(draw.randrange(8, 30))]
            seen.update({f"made: {name}": number for name, number in history.made.items()})
            for _ in range(6):
                first, last = sorted(draw.choices(range(len(history.points)), k=2))
                seen.update(_check(url, remote, history.points[first : last + 1], steps))
            seen.update(_check_whole(url, remote, history.points[-1]))
    tell(f"feeds of changes {amount}: {dict(sorted(seen.items()))}")
    assert amount < 10 or {"append", "undelete", *REMOVALS, "crossing", "collected"} <= set(seen)


def _collect(archive: Archive) -> None:
    for _ in range(2):
        assert not archive.upkeep.collect(retain_s=0, grace_s=0).blocked


def _check(url: str, remote: Remote, points: list[ForkPoint], steps: list[str]) -> Iterator[str]:
    """Compare a copy with the topic at each of these states, and apply the feed from the first to the last at once."""
    since, end = points[0], points[-1]
    if max(1, since.lsn) < remote.volumes.boundary(since.vid):
        with pytest.raises(OutOfWindow):
            between(url, since, end)
        yield "collected"
        return
    rows = between(url, since, end)
    copy = shown(remote, since)
    if since.vid != end.vid:
        yield "crossing"
        apply(copy, rows, is_crossing=True)
    else:
        for lsn in range(since.lsn + 1, end.lsn + 1):
            apply(copy, [row for row in rows if row["_lsn"] == lsn])
            assert copy == shown(remote, ForkPoint(end.vid, lsn)), (lsn, steps)
        assert [row["_lsn"] for row in rows] == sorted(row["_lsn"] for row in rows)
    assert copy == shown(remote, end), (since, end, steps)
    yield from (row["_change"] for row in rows)


def _check_whole(url: str, remote: Remote, end: ForkPoint) -> Iterator[str]:
    """Compare a copy that begins with nothing. The newest row of each seq makes it, as a MERGE takes it."""
    newest = {row["seq"]: row for row in sorted(feed(url, topic="t"), key=lambda row: row["_lsn"])}
    copy: Copy = {}
    apply(copy, [row for row in newest.values() if row["_change"] not in REMOVALS])
    assert copy == shown(remote, end)
    yield "whole"


def test_each_commit_has_its_rows(url: str):
    """Append, delete, truncation, appends that use its seqs again, an eviction, a merge that changes nothing."""
    archive = TopicArchive(url)
    ref = archive.add([*samples(3), Sample(b"dead", deleted=True)])
    archive.delete(ref, [1])
    archive.truncate(3)
    archive.add(samples(2))
    archive.evict(2)
    rows = feed(url)
    assert changes(rows) == [
        (1, "append", 1), (1, "append", 2), (1, "append", 3),
        (2, "delete", 2), (3, "truncate", 3), (4, "append", 3), (4, "append", 4), (5, "evict", 1),
    ]  # fmt: skip
    assert {name: value for name, value in rows[3].items() if value is not None} == {
        "topic": "orders", "seq": 2, "_change": "delete", "_lsn": 2,
    }  # fmt: skip
    assert (rows[0]["value"], rows[0]["tag"], rows[0]["lsn"], rows[0]["_lsn"]) == (b"0", "even", 1, 1)
    assert changes(feed(url, startingVersion=2, endingVersion=4)) == changes(rows)[3:7]
    assert feed(url, startingVersion=6) == []
    assert {*feed(url, columns="_lsn,seq", endingVersion=1)[0]} == {"_lsn", "seq"}
    metadata = feed(url, includeMetadata="true", columns="seq,block,offset,segment,_change")
    assert [row["block"] for row in metadata[:4]] == [1, 1, 1, None]


def test_times_choose_commits(url: str):
    archive = TopicArchive(url)
    archive.add(samples(1))
    archive.add(samples(1))
    at = NOW_MS  # of all commits
    assert [row["_lsn"] for row in feed(url, startingTimestamp=at, endingTimestamp=at)] == [1, 2]
    assert feed(url, startingTimestamp=at + 1) == []
    assert feed(url, endingTimestamp=at - 1) == []


def test_ranges_by_time_have_each_commit_once_if_a_clock_went_back(url: str, monkeypatch: pytest.MonkeyPatch):
    archive = TopicArchive(url)
    times = 100, 200, 150, 120, 300
    for time in times:
        monkeypatch.setattr(archives, "NOW_MS", time)
        archive.add(samples(1))
    for start in range(90, 310, 10):
        found = [row["_lsn"] for row in feed(url, startingTimestamp=start)]
        assert found == list(range(len(times) - len(found) + 1, len(times) + 1)), start
        assert {lsn for lsn, time in enumerate(times, 1) if time >= start} <= {*found}, start
        before = [row["_lsn"] for row in feed(url, endingTimestamp=start - 1)]
        assert before + found == [1, 2, 3, 4, 5], start
    with pytest.raises(InvalidOption, match="endingTimestamp: it lies before startingTimestamp"):
        feed(url, startingTimestamp=200, endingTimestamp=199)
    with pytest.raises(
        InvalidOption, match="startingTimestamp: the commits up to the end of the feed, lsn 2, are older"
    ):
        feed(url, startingTimestamp=300, endingVersion=2)


def test_a_removal_counts_by_its_rows(url: str):
    """Otherwise Spark would take it for empty, and broadcast it."""
    archive = TopicArchive(url)
    archive.add([Sample(b"")] * 3_000)
    archive.truncate(1)
    options = parse_options({"path": url, "topic": "orders", "readChangeFeed": "true", "startingVersion": "2"})
    assert planned(options).raw_bytes >= 8 * 3_000


def test_a_removal_fetches_several_indexes_at_a_time(remote: Remote, url: str, monkeypatch: pytest.MonkeyPatch):
    archive = TopicArchive(url)
    for _ in range(4):
        archive.add([Sample(b"a"), Sample(b"b", deleted=True), Sample(b"c")])
    archive.truncate(1)
    fetched: list[int] = []

    def indexed(views: Iterable[SegmentView]) -> Iterator[SegmentView]:
        found = list(views)
        fetched.append(len(found))
        return iter(found)

    monkeypatch.setattr(remote.reader, "indexed", indexed)
    options = parse_options({"path": url, "topic": "orders", "readChangeFeed": "true", "startingVersion": "5"})
    assert remote.plan(options, remote.pin(options), Query(frozenset({"seq"}))).rows == 8
    assert 4 in fetched


def test_gc_in_the_middle_of_a_plan_is_no_damage(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch):
    with (
        closing(open_store(url)) as store,
        opened(tmp_path / "log", store) as (log, archive),
        closing(Remote.open(url)) as remote,
    ):
        for _ in range(3):
            ship(archive, log, "orders", b"one")
        options = parse_options({"path": url, "topic": "orders", "readChangeFeed": "true", "startingVersion": "1"})
        pin, indexed = remote.pin(options), remote.reader.indexed

        def collected(views: Iterable[SegmentView]) -> Iterator[SegmentView]:
            monkeypatch.setattr(remote.reader, "indexed", indexed)
            archive.delete("orders", seqs=[2])
            archive.upkeep.erase("orders")
            _collect(archive)
            for file in Path(url.removeprefix("file://")).rglob("segments/*"):
                file.unlink()
            return indexed(views)

        monkeypatch.setattr(remote.reader, "indexed", collected)
        with pytest.raises(OutOfWindow, match="startingVersion="):
            remote.plan(options, pin, Query(frozenset({"seq"})))


def test_a_removal_is_made_of_ranges_without_a_read(url: str):
    """Three thousand rows from two pieces, although the objects are gone."""
    archive = TopicArchive(url)
    archive.add(samples(2_000))
    archive.add(samples(2_000))
    archive.truncate(1_001)
    for file in Path(url.removeprefix("file://")).rglob("segments/*"):
        file.unlink()
    options = parse_options({"path": url, "topic": "orders", "readChangeFeed": "true", "startingVersion": "3"})
    tasks = planned(options).tasks
    assert [piece.needs for task in tasks for piece in task.pieces] == [Needs.NOTHING] * 2
    rows = feed(url, startingVersion=3)
    assert changes(rows) == [(3, "truncate", seq) for seq in range(1_001, 4_001)]


def test_a_branch_begins_with_the_state_that_it_was_forked_with(url: str):
    main = TopicArchive(url)
    main.add(samples(4))
    main.add(samples(4))
    half = TopicArchive(url, branch="half", parent=ForkPoint(main.vid, 2, 6))
    half.add([Sample(b"own")])
    assert changes(feed(url, branch="half")) == [(0, "append", seq) for seq in range(1, 7)] + [(1, "append", 7)]
    assert changes(feed(url, topic="orders@half", startingVersion=1)) == [(1, "append", 7)]


def test_a_start_in_the_former_volume_follows_a_promotion(url: str):
    main = TopicArchive(url)
    ref = main.add(samples(4))
    fixed = TopicArchive(url, branch="fixed", parent=ForkPoint(main.vid, 1, 4))
    main.delete(ref, [0])
    main.add(samples(2))
    fixed.delete(ref, [3])
    fixed.add([Sample(b"other")])
    fixed.add([Sample(b"more")])
    rows = feed(url, branch="fixed", startingVersion=f"4@{main.vid}")
    expected = [(3, "delete", 4), (3, "undelete", 1), (3, "append", 5), (3, "append", 6)]
    assert sorted(changes(rows)) == sorted(expected)
    assert [row["value"] for row in rows if row["_change"] == "append"] == [b"other", b"more"]
    back = feed(url, startingVersion=f"2@{fixed.vid}", endingVersion=2)
    assert sorted(changes(back)) == [(2, "delete", 1), (2, "undelete", 4)]
    events = TopicArchive(url, topic="events")
    with pytest.raises(InvalidOption, match="is a volume of events, not of orders"):
        feed(url, startingVersion=f"1@{events.vid}")
    for start, reason in ((f"5@{main.vid}", "5 is behind the end of"), (f"1@{Vid.new(NOW_MS)}", "there is no volume")):
        with pytest.raises(InvalidOption, match=reason) as refused:
            feed(url, branch="fixed", startingVersion=start)
        assert "seglog log orders --json" in str(refused.value.hint)


def test_an_undo_gives_the_records_again(tmp_path: Path, url: str):
    with closing(open_store(url)) as store, opened(tmp_path / "log", store) as (log, archive):
        ship(archive, log, "orders", b"one", b"two", b"three")
        removed = archive.delete("orders", seqs=[2, 3])
        archive.upkeep.erase("orders")
        assert removed.lsn is not None
        archive.history.undo_removal("orders", removed.lsn)
        rows = feed(url, startingVersion=removed.lsn)
        back = removed.lsn + 2  # behind the erasure, which has no rows
        deleted = [(removed.lsn, "delete", seq) for seq in (2, 3)]
        assert changes(rows) == [*deleted, (back, "undelete", 2), (back, "undelete", 3)]
        assert [row["value"] for row in rows] == [None, None, b"two", b"three"]


def test_a_start_that_gc_has_passed_is_refused_and_the_feed_begins_with_what_is_kept(tmp_path: Path, url: str):
    with closing(open_store(url)) as store, opened(tmp_path / "log", store) as (log, archive):
        for number in range(4):
            ship(archive, log, "orders", b"%d" % number)
        archive.delete("orders", seqs=[2])
        archive.upkeep.erase("orders")
        _collect(archive)
        ship(archive, log, "orders", b"new")
        with pytest.raises(OutOfWindow, match="startingVersion=") as refused:
            feed(url, startingVersion=2)
        assert refused.value.hint is not None
        rows = feed(url)
        oldest, newest = rows[0]["_lsn"], rows[-1]["_lsn"]
        assert (changes(rows), newest > oldest > 1) == (
            [(oldest, "append", 1), (oldest, "append", 3), (oldest, "append", 4), (newest, "append", 5)],
            True,
        )
        assert f"startingVersion={oldest + 1}" in str(refused.value)
        assert changes(feed(url, startingVersion=oldest + 1)) == [(newest, "append", 5)]
        with pytest.raises(OutOfWindow):
            feed(url, startingVersion=oldest)
        for options in ({"endingVersion": 2}, {"endingTimestamp": "2 hours ago"}, {"startingTimestamp": "2 hours ago"}):
            with pytest.raises(OutOfWindow, match=r"state of orders at lsn|commits of orders since 2 hours ago"):
                feed(url, **options)
        with closing(Remote.open(url)) as remote:
            follower = Follower(remote, readChangeFeed="true", startingVersion=2)
            with pytest.raises(OutOfWindow):
                follower.advance()
            assert follower.offsets == ["{}"]


def test_a_promotion_replaces_records_also_if_gc_has_passed_the_fork(tmp_path: Path, url: str):
    """The former main keeps no commit from which the branch began, so equal seqs may be other records."""
    with closing(open_store(url)) as store, opened(tmp_path / "log", store) as (log, archive):
        ship(archive, log, "orders", b"one", b"two")
        archive.restore("orders", to="head", name="b")
        ship(archive, log, "orders", b"three", b"four")
        ship(archive, log, "orders", b"five")
        _collect(archive)
        ship(archive, log, "orders@b", b"other")
        seen = archive.history.diff("orders", "orders@b")
        assert (seen.shared_seq, seen.left.appended, seen.right.appended) == (2, 3, 1)
        main = archive.history.snapshot("orders")
        archive.branches.promote_branch("orders", "b", keep="old", leave=True)
        rows = feed(url, startingVersion=f"{main.lsn + 1}@{main.vid}")
        kinds = {(row["_change"], row["seq"], row["value"]) for row in rows}
        assert kinds == {("truncate", 4, None), ("truncate", 5, None), ("append", 3, b"other")}


def test_a_truncation_that_gc_has_taken_hides_no_other_record(tmp_path: Path, url: str):
    with closing(open_store(url)) as store, opened(tmp_path / "log", store) as (log, archive):
        ship(archive, log, "orders", b"one", b"two")
        archive.restore("orders", to="head", name="b")
        archive.truncate("orders", 2)
        ship(archive, log, "orders", b"second")
        _collect(archive)
        main = archive.history.snapshot("orders")
        ship(archive, log, "orders@b", b"three")
        archive.branches.promote_branch("orders", "b", keep="old", leave=True)
        rows = feed(url, startingVersion=f"{main.lsn + 1}@{main.vid}")
        assert {(row["_change"], row["value"]) for row in rows} >= {("append", b"two"), ("append", b"three")}


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"startingVersion": 9}, "startingVersion"),
        ({"endingVersion": 2}, "endingVersion"),
        ({"startingVersion": 2, "endingVersion": 0}, "endingVersion"),
        ({"startingVersion": 0}, "startingVersion"),
        ({"startingVersion": "1@x"}, "startingVersion"),
        ({"startingVersion": "@x"}, "startingVersion"),
        ({"startingVersion": 1, "startingTimestamp": 1}, "startingTimestamp"),
        ({"endingVersion": 1, "endingTimestamp": 1}, "endingTimestamp"),
        ({"versionAsOf": 1}, "versionAsOf"),
        ({"startingSeq": 1}, "startingSeq"),
        ({"endingOffsets": "latest"}, "endingOffsets"),
        ({"tag": "x"}, "tag"),
        ({"pinSeconds": 5}, "pinSeconds"),
        ({"kmsKeyId": "key"}, "kmsKeyId"),
        ({"topic": "ord*"}, "topic"),
        ({"topic": "orders,events"}, "topic"),
        ({"readChangeFeed": "yes"}, "readChangeFeed"),
        ({"readChangeFeed": "false", "startingVersion": 1}, "startingVersion"),
        ({"readChangeFeed": "false", "endingVersion": 1}, "endingVersion"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(url: str, options: dict[str, object], option: str):
    TopicArchive(url).add(samples(1))
    with pytest.raises(InvalidOption) as refused:
        read(url, **{"readChangeFeed": "true", **options})
    assert (refused.value.option, refused.value.hint is not None or option == "readChangeFeed") == (option, True)


def test_a_stream_follows_commits_a_restart_and_a_promotion(remote: Remote, url: str):
    main = TopicArchive(url)
    ref = main.add(samples(3))
    follower = Follower(remote, readChangeFeed="true")
    follower.advance()
    main.delete(ref, [0])
    follower.restart()
    follower.advance()
    assert follower.advance() == follower.offsets[-1]
    assert changes(follower.whole_rows(1)) == [(1, "append", 1), (1, "append", 2), (1, "append", 3)]
    assert changes(follower.whole_rows(2)) == [(2, "delete", 1)]
    fixed = TopicArchive(url, branch="fixed", parent=ForkPoint(main.vid, 1))
    fixed.add(samples(1))
    Branches(remote.volumes).promote("orders", "fixed", "old", (main.vid, fixed.vid), now_ms=NOW_MS)
    follower.advance()
    assert changes(follower.whole_rows()) == [(1, "undelete", 1), (1, "append", 4)]
    fixed.add(samples(1))
    follower.advance()
    assert changes(follower.whole_rows()) == [(2, "append", 5)]


def test_a_stream_begins_after_the_version_that_a_copy_was_made_of(remote: Remote, url: str):
    archive = TopicArchive(url)
    archive.add(samples(1))
    follower = Follower(remote, readChangeFeed="true", startingVersion=2)
    follower.advance()
    assert follower.whole_rows() == []
    archive.add(samples(1))
    follower.advance()
    assert changes(follower.whole_rows()) == [(2, "append", 2)]


def test_a_checkpoint_of_records_is_none_of_changes(remote: Remote, url: str):
    TopicArchive(url).add(samples(1))
    records, both = Follower(remote), Follower(remote, readChangeFeed="true")
    records.advance()
    both.advance()
    TopicArchive(url, topic="other")
    records.offsets, both.offsets = both.offsets, records.offsets
    with pytest.raises(Misuse, match="stream of records"):
        both.advance()
    with pytest.raises(Misuse, match="stream of changes"):
        records.advance()
    with pytest.raises(Misuse, match="stream of changes"):
        records.rows()


def test_a_start_that_is_wrong_leaves_no_offset(remote: Remote, url: str):
    """The checkpoint stays empty, so the corrected option counts."""
    archive = TopicArchive(url)
    archive.add(samples(1))
    follower = Follower(remote, readChangeFeed="true", startingVersion=50)
    with pytest.raises(InvalidOption, match="50 is behind the end of the feed, lsn 1"):
        follower.advance()
    follower.texts["startingVersion"] = f"50@{archive.vid}"
    follower.restart()
    with pytest.raises(InvalidOption):
        follower.advance()
    follower.texts["startingVersion"] = "1"
    follower.restart()
    follower.advance()
    assert changes(follower.whole_rows()) == [(1, "append", 1)]


def test_a_checkpoint_of_another_topic_is_refused(remote: Remote, url: str):
    TopicArchive(url).add(samples(1))
    TopicArchive(url, topic="events").add(samples(1))
    follower = Follower(remote, readChangeFeed="true")
    follower.advance()
    for texts in ({"topic": "events"}, {"branch": "fixed"}):
        other = Follower(remote, readChangeFeed="true", **texts)
        other.offsets = list(follower.offsets)
        for does in (other.advance, other.whole_rows):
            with pytest.raises(Misuse, match="it is of orders@main"):
                does()
    assert changes(follower.whole_rows()) == [(1, "append", 1)]


def test_a_stream_that_begins_in_the_future_is_refused(remote: Remote, url: str):
    archive = TopicArchive(url)
    archive.add(samples(1))
    follower = Follower(remote, readChangeFeed="true", startingTimestamp=9_999_999_999_999)
    with pytest.raises(InvalidOption, match="startingTimestamp: it lies in the future"):
        follower.advance()
    follower.texts["startingTimestamp"] = str(NOW_MS + 1)
    follower.restart()
    follower.advance()
    assert follower.whole_rows() == []
    follower.texts["startingTimestamp"] = "9999999999999"  # a checkpoint overrules it
    follower.restart()
    archive.add(samples(1))
    follower.advance()
    assert changes(follower.whole_rows()) == [(2, "append", 2)]
