"""Two directories, a store, and a plain model of each name: `test_expiry_of_branches.py` draws histories of it.

The model knows nothing of segments, commits or volumes. It keeps for each name the records that it has, and the
deletes, evictions and truncations that took some. From those it says what an undo, a promotion and a load lead to.

    step     what happens                                               what must hold, beside the records
    undo     a preview, what another client does, the run; of           the run takes the commit of the preview,
             inherited commits too, and with records that wait.         and a repetition changes nothing
             Often the next commit of the branch has its number
    again    an append under a key, and a producer's batch, again       they get their seqs, and no record is added
    aside    the library appends where the directory only follows       `WrittenElsewhere`
    load     a job without a log; perhaps a takeover meanwhile, or a    `WrittenByLog` if a log wrote, and only then;
             promotion and a second job after it                        `LoadConflict` if another commit came
    promote  a branch becomes main, with `carry` in worlds without a    each record of main is carried once
             ttl, by either directory; perhaps that is undone, the
             branch is cut or written, and becomes main again
    beside   the other directory takes a name over and writes it, and   the first one changes nothing, or its undo
             the first one makes the delete, truncation or undo that    counts, as the newest state allows it
             it had seen a preview of

Not here: what a producer gets after another directory wrote. The model has two limits of a carry, too
(docs/internals/limits-in-full.md): it brings no record that was deleted at an earlier carry and is back by an undo
since, and it begins anew if a truncation left only deleted copies. It takes a deleted record that has the seq of the
last copy for that copy.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pytest

import offload
import seglog
from catalog import ForkPoint, Volumes
from catalog.errors import Diverged, NotUndone
from catalog.objects.memory import MemoryStore
from catalog.undo_plan import TAKES_AWAY
from offload import OffloadSettings
from offload.archive import Archive
from offload.errors import Conflict
from offload.handles import split_name
from offload.load import LoadConflict, LoadRequest, WrittenByLog
from seglog import Log, ProducerBatch, SeqSet, Topic, TopicConfig, WrittenElsewhere
from seglog.values.names import BRANCH_MARK
from tests.offload.load.loads import begin, finish, part
from tests.offload.replicas import SMALL_WAL
from tests.worlds.clock import HandClock

__all__ = ["ABOVE_ALL", "World", "kept_by"]

TTL_MS = 100
STEPS = ("append",) * 4 + ("forward", "drop") * 2 + ("undo",) * 6 + ("again", "aside", "load", "promote") * 2
STEPS += ("delete", "delete_tag", "delete_range", "truncate", "fork", "beside") * 2
STEPS += ("offload", "evict", "merge", "erase", "hand", "reopen")
ABOVE_ALL = 2**64


@dataclass
class Held:
    """A record, and whether it is the volume's own. A copy has a number of its own, and the value of its original."""

    ms: int
    number: int
    value: bytes
    is_own: bool
    is_tagged: bool


@dataclass
class Removal:
    """A delete, an eviction or a truncation. It takes the seqs below `below` and from `start` on, whatever they are.

    `taken` are the live records that it took, and `cut` those that exist no more. `reached` were deleted before: its
    commit names them if objects of the state hold them. `point` is its commit, None as long as that is not known.
    `is_clean` says that all of `taken` had been offloaded.
    """

    taken: dict[int, Held]
    is_clean: bool
    below: int = 1
    start: int = ABOVE_ALL
    is_eviction: bool = False
    reached: frozenset[int] = frozenset()
    cut: dict[int, Held] = field(default_factory=dict[int, Held])
    point: ForkPoint | None = None
    is_looked_up: bool = False
    is_undone: bool = False
    is_reused: bool = False
    returned: set[int] = field(default_factory=set[int])


class Reach(Protocol):
    """A removal takes the seqs below `below` and from `start` on, whatever they are."""

    @property
    def below(self) -> int: ...
    @property
    def start(self) -> int: ...


def kept_by(removals: Iterable[Reach]) -> tuple[int, int]:
    """Return the first seq that these removals left, and the first one above it that they took."""
    below, start = 1, ABOVE_ALL
    for each in removals:
        below, start = max(below, each.below), min(start, each.start)
        below = min(below, start)
    return below, start


@dataclass
class Volume:
    """The records of a volume that no truncation took, and those of them that are `live`.

    `is_logs` says whether a log made a commit since the last load: None if that is not known. `copies` has the numbers
    of records that were carried here, with those of their copies, `copied_seq` the seq of the last one, and `origin`
    says from where.
    """

    key: int
    records: dict[int, Held] = field(default_factory=dict[int, Held])
    live: set[int] = field(default_factory=set[int])
    removals: list[Removal] = field(default_factory=list[Removal])
    is_logs: bool | None = False
    copies: dict[int, int] = field(default_factory=dict[int, int])
    copied_seq: int = 0
    origin: tuple[int, int] = (0, 0)

    @property
    def head_seq(self) -> int:
        return max(self.records, default=0)

    @property
    def numbers(self) -> set[int]:
        return {each.number for each in self.records.values()}

    @property
    def evict_floor(self) -> int:
        floor = 1
        for each in self.removals:
            if not each.is_undone:
                floor = min(max(floor, each.below) if each.is_eviction else floor, each.start)
        return floor

    def shown(self, oldest_ms: int, *, is_branch: bool) -> list[tuple[int, bytes]]:
        expired = [seq for seq, each in self.records.items() if each.ms < oldest_ms and (each.is_own or not is_branch)]
        floor = max(self.evict_floor, max(expired, default=0) + 1)
        return [(seq, self.records[seq].value) for seq in sorted(self.live) if seq >= floor]

    def add(self, seq: int, held: Held) -> None:
        self.records[seq] = held
        self.live.add(seq)
        for each in self.removals:
            each.is_reused = each.is_reused or seq >= each.start

    def remove(self, removal: Removal) -> None:
        self.removals.append(removal)
        self.live -= removal.taken.keys()
        for seq in removal.cut:
            del self.records[seq]

    def back(self, removal: Removal) -> set[int]:
        """Return the seqs that an undo brings back (UNDO-1)."""
        later = self.removals[self.removals.index(removal) + 1 :]
        below, start = kept_by(each for each in later if not each.is_undone)
        return {seq for seq in removal.taken if below <= seq < start} - removal.returned - self.live

    def held_up(self, removal: Removal) -> list[Removal]:
        """Return the earlier removals that are undone, which the undo of this one completes (BACK-7)."""
        return [each for each in self.removals[: self.removals.index(removal)] if each.is_undone]

    def is_sure(self, removal: Removal) -> bool:
        """Return whether no later delete may have named what this one took."""
        later = (each for each in self.removals[self.removals.index(removal) + 1 :] if not each.is_undone)
        return not any(each.reached & removal.taken.keys() for each in later)

    def undo(self, removal: Removal) -> int:
        """Undo a removal, and return how many records are back."""
        before = len(self.live)
        if not removal.is_undone:
            self.records |= removal.cut
        for each in (removal, *self.held_up(removal)):
            back = self.back(each)
            each.returned |= back
            each.is_undone = True
            self.live |= back
        return len(self.live) - before

    def fork(self, key: int) -> Volume:
        forked = deepcopy(self)
        forked.key, forked.is_logs = key, False
        for held in (forked.records, *(records for each in forked.removals for records in (each.taken, each.cut))):
            for seq, each in held.items():
                held[seq] = replace(each, is_own=False)
        return forked


class World:
    """`writer` is the directory that writes a name. `made` counts what happened."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.ttl_ms = TTL_MS if seed % 2 else None
        self.clock = HandClock(10_000)
        self.store = MemoryStore(self.clock.now_ms)
        self.path = path
        self.stack = ExitStack()
        self.numbers = itertools.count(1)
        self.made: Counter[str] = Counter()
        self.told: list[str] = []
        self.others: set[ForkPoint] = set()
        self.repeatable: dict[str, list[tuple[dict[str, Any], bytes, range]]] = defaultdict(list)
        self.reopen("")
        self.places[0][0].create_topic("t", TopicConfig(ttl_ms=self.ttl_ms))
        self.volumes, self.writer = {"t": Volume(next(self.numbers))}, {"t": 0}
        self.append("t")
        self.offload("t")
        self.chance.choice([self.delete, self.delete_tag, self.delete_range, self.truncate])(
            "t"
        )  # the branch inherits it
        self.offload("t")
        self.fork("t")

    def step(self) -> None:
        do, name = self.chance.choice(STEPS), self.chance.choice(sorted(self.volumes))
        self.told.append(f"{do} {name}")
        getattr(self, do)(name)
        for each in sorted({name, "t"}):
            self.look(each)

    def look(self, name: str) -> None:
        if name not in self.volumes:
            return
        owner = self.writer[name]
        self.compare("owner", name, owner)
        if self.chance.random() < 0.5:
            self.offload(name)
            self.places[1 - owner][1].replication.sync(name)
            self.compare("owner after its offload", name, owner)
            self.compare("replica", name, 1 - owner)

    def compare(self, who: str, name: str, place: int) -> None:
        self.made["looks"] += 1
        oldest_ms = 0 if self.ttl_ms is None else self.clock.ms - self.ttl_ms
        wanted = self.volumes[name].shown(oldest_ms, is_branch=BRANCH_MARK in name)
        found = [(record.seq, record.value) for record in self.places[place][1].read(name)]
        assert found == wanted, f"{who} of {name} at {self.clock.ms}, after {self.told}"

    def archive(self, name: str) -> Archive:
        return self.places[self.writer[name]][1]

    def topic(self, name: str) -> Topic:
        return self.archive(name).open_for_append(name)

    # ------------------------------------------------------------ records

    def append(self, name: str) -> None:
        topic, volume, tag = self.topic(name), self.volumes[name], self.chance.choice([None, "x"])
        for _ in range(self.chance.randint(1, 3)):
            number = next(self.numbers)
            value = b"%d" % number
            batch = ProducerBatch(f"p{number}", epoch=0, number=0)
            options: dict[str, Any] = self.chance.choice([{}, {"key": f"k{number}"}, {"producer": batch}])
            seqs = topic.append([value], tag=tag, **options)
            assert seqs == range(volume.head_seq + 1, volume.head_seq + 2), self.told
            volume.add(seqs[0], Held(topic.last_ts_ms, number, value, is_own=True, is_tagged=tag is not None))
            if options:
                self.repeatable[name].append(({"tag": tag, **options}, value, seqs))

    def again(self, name: str) -> None:
        for options, value, seqs in self.repeatable[name][-4:]:
            assert self.topic(name).append([value], **options) == seqs, self.told
            self.made["repetitions"] += 1

    def aside(self, name: str) -> None:
        for log, archive in self.places:
            if archive.replication.is_replica(name):
                with pytest.raises(WrittenElsewhere):
                    log.topic(name).append([b"a second history"])
                self.made["refused appends"] += 1

    def forward(self, _: str) -> None:
        self.clock.ms += self.chance.randint(1, 60)

    def load(self, name: str) -> None:
        self.offload(name)
        volume, (topic, branch) = self.volumes[name], split_name(name)
        request = LoadRequest(topic, branch, take_over=volume.is_logs is not False)
        number = next(self.numbers)
        value = b"%d" % number
        if volume.is_logs:
            with pytest.raises(WrittenByLog):
                begin(self.store, [[value]], replace(request, take_over=False), self.clock.ms)
        begun = begin(self.store, [[value]], request, self.clock.ms)
        meanwhile = self.chance.choice([None, None, None, self.hand, self.append])
        if meanwhile is not None:
            meanwhile(name)
            self.offload(name)
        written = [part(self.store, begun, 0, [value])]
        if Volumes(self.store).newest_lsn(begun.vid) != begun.lsn:
            with pytest.raises(LoadConflict):
                finish(self.store, begun, written)
            self.made["refused loads"] += 1
            return
        loaded = finish(self.store, begun, written)
        assert loaded.first_seq == volume.head_seq + 1, self.told
        volume.add(loaded.first_seq, Held(begun.start_ms, number, value, is_own=True, is_tagged=False))
        volume.is_logs = False
        self.follow(self.writer[name], name)
        self.archive(name).replication.sync(name)
        self.made["loads"] += 1
        if self.chance.random() < 0.7:
            self.promote(name)
            self.load(next(each for each in self.volumes if self.volumes[each] is volume))

    # ------------------------------------------------------------ deletes and their undo

    def delete(self, name: str) -> None:
        volume, before = self.volumes[name], self.chance.randint(1, self.volumes[name].head_seq + 1)
        taken = {seq: volume.records[seq] for seq in volume.live if seq < before}
        if taken:  # otherwise there is nothing to commit
            volume.remove(Removal(taken, self.clean(name), below=before))
            self.archive(name).delete(name, before=before)

    def delete_tag(self, name: str) -> None:
        volume = self.volumes[name]
        reached = {seq: each for seq, each in volume.records.items() if each.is_tagged}
        taken = {seq: each for seq, each in reached.items() if seq in volume.live}
        if taken:
            volume.remove(Removal(taken, self.clean(name), reached=frozenset(reached.keys() - volume.live)))
            self.archive(name).delete(name, tag="x")

    def delete_range(self, name: str) -> None:
        """Delete single records, or a range that begins above seq 1. A later undo shows them whatever their seqs."""
        volume = self.volumes[name]
        seqs = {self.chance.randint(1, max(volume.head_seq, 1)) for _ in range(self.chance.randint(1, 3))}
        start = self.chance.randint(2, 9)
        is_open = self.chance.random() < 0.3
        reached = {seq: each for seq, each in volume.records.items() if (seq >= start if is_open else seq in seqs)}
        taken = {seq: each for seq, each in reached.items() if seq in volume.live}
        if taken:
            volume.remove(Removal(taken, self.clean(name), reached=frozenset(reached.keys() - volume.live)))
            reach = {"start": start} if is_open else {"seqs": SeqSet.of_seqs(sorted(seqs))}
            self.archive(name).delete(name, **reach)
            self.made["deletes of ranges"] += 1

    def truncate(self, name: str) -> None:
        volume = self.volumes[name]
        start = self.chance.randint(volume.evict_floor, max(volume.evict_floor, volume.head_seq + 1))
        taken = {seq: volume.records[seq] for seq in volume.live if seq >= start}
        cut = {seq: each for seq, each in volume.records.items() if seq >= start}
        if cut:
            volume.remove(Removal(taken, self.clean(name), start=start, cut=cut))
            self.archive(name).truncate(name, start)
            self.repeatable[name].clear()

    def evict(self, name: str) -> None:
        volume = self.volumes[name]
        floor = self.chance.randint(volume.evict_floor, max(volume.evict_floor, volume.head_seq // 2))
        taken = {seq: volume.records[seq] for seq in volume.live if seq < floor}
        if taken:
            volume.remove(Removal(taken, self.clean(name), below=floor, is_eviction=True))
            self.archive(name).evict(name, floor)

    def clean(self, name: str) -> bool:
        """Perhaps offload all, and return whether that is so. Then the commit of a removal takes as much as it does."""
        self.topic(name)
        is_clean = self.chance.random() < 0.7
        if is_clean:
            self.offload(name)
        return is_clean

    def undoable(self, name: str) -> list[Removal]:
        volume = self.volumes[name]
        known = [each for each in volume.removals if each.point and not each.is_reused and volume.back(each)]
        return [each for each in known if all(map(volume.is_sure, (each, *volume.held_up(each))))]

    def undo(self, name: str) -> None:
        volume = self.volumes[name]
        self.offload(name)
        known = self.undoable(name)
        if not known:
            return
        vid = self.archive(name).history.snapshot(name).vid
        inherited = [each for each in known if each.point and each.point.vid != vid]
        removal = self.chance.choice(inherited or known)
        assert removal.point is not None
        lsn, vid = removal.point.lsn, removal.point.vid
        if inherited and not removal.cut and self.chance.random() < 0.7:
            while self.archive(name).history.snapshot(name).lsn < lsn - 1:  # the next commit gets the number
                self.append(name)
                self.offload(name)
        if not removal.cut and self.chance.random() < 0.5:
            self.append(name)
        history = self.archive(name).history
        own = history.commits(name).at_lsn(lsn)
        is_plain = own is not None and own.commit.vid == vid  # at this time, the number alone means that commit
        undone = [past.commit.restored.undone for past in history.commits(name) if past.commit.restored]
        self.note_writer(name)
        if is_plain and any(each.lsn == lsn and each.vid != vid for each in undone):  # or it may mean two (BACK-5)
            with pytest.raises(NotUndone, match="an earlier undo"):
                history.undo_removal(name, lsn)
            is_plain = False
        if is_plain and self.chance.random() < 0.5:
            done = history.undo_removal(name, lsn)
        else:
            assert history.preview_undo(name, lsn, vid).undone == removal.point
            self.chance.choice([self.hand, self.merge, self.merge if removal.cut else self.append])(name)
            self.note_writer(name)
            done = self.archive(name).history.undo_removal(name, lsn, vid)
            assert self.archive(name).history.undo_removal(name, lsn, vid).is_earlier
        self.note_writer(name)
        self.made["undone"] += 1
        self.made["undone of a parent"] += done.undone.vid != history.snapshot(name).vid
        assert done.undone == removal.point, self.told
        assert done.records == volume.undo(removal), self.told

    def beside(self, name: str) -> None:
        """Let the other directory write between a preview here and its run. The run changes nothing, or undoes."""
        self.topic(name)
        self.offload(name)
        volume, former = self.volumes[name], self.writer[name]
        log, archive = self.places[former]
        before, cut = self.chance.randint(1, volume.head_seq + 1), max(volume.evict_floor, volume.head_seq)
        removal = self.chance.choice([None, *self.undoable(name)])
        if removal is not None and removal.point is not None:
            archive.history.preview_undo(name, removal.point.lsn, removal.point.vid)
        else:
            archive.previews.removal(name, before=before)
        self.writer[name] = 1 - former
        self.archive(name).replication.take_over(name)
        self.repeatable[name].clear()
        lsn = self.archive(name).history.snapshot(name).lsn
        self.append(name)
        self.chance.choice([self.append, self.delete, self.truncate, self.merge])(name)
        self.offload(name)
        if self.archive(name).history.snapshot(name).lsn == lsn:  # the truncation took the append: nothing fences yet
            self.append(name)
            self.offload(name)
        back = volume.back(removal) if removal is not None and not removal.is_reused else set[int]()
        try:
            if removal is not None and removal.point is not None:
                done = archive.history.undo_removal(name, removal.point.lsn, removal.point.vid)
                assert (done.undone, done.records) == (removal.point, volume.undo(removal)), self.told
                self.follow(1 - former, name)
                self.made["undone beside another writer"] += 1
            elif self.chance.random() < 0.5:
                assert archive.delete(name, before=before).lsn is None, self.told
            else:
                archive.truncate(name, cut)
        except Diverged:
            self.made["refused beside another writer"] += 1
        except NotUndone:
            if back:
                raise
        if log.has_topic(name):
            archive.replication.reset(name, discard=True)
        self.note_writer(name)

    # ------------------------------------------------------------ the archive

    def offload(self, name: str, *, drop_hot: bool = False) -> None:
        log, archive = self.places[self.writer[name]]
        if not log.has_topic(name):
            return
        log.topic(name).seal()
        archive.offload(name, drop_hot=drop_hot)
        self.look_up(name)
        self.note_writer(name)

    def note_writer(self, name: str) -> None:
        log, archive = self.places[self.writer[name]]
        if log.has_topic(name):
            self.volumes[name].is_logs = True if archive.history.snapshot(name).lsn else None

    def look_up(self, name: str) -> None:
        """Find the commits of the removals. If some made none, nobody knows which commit is whose."""
        waiting = [each for each in self.volumes[name].removals if not each.is_looked_up]
        known = {each.point for each in self.volumes[name].removals}
        found: list[ForkPoint] = []
        for past in self.archive(name).history.commits(name):
            point = ForkPoint(past.commit.vid, past.commit.lsn)
            if past.commit.kind in TAKES_AWAY and point not in known and point not in self.others:
                found.insert(0, point)
        for each in waiting:
            each.is_looked_up = True
        if len(found) == len(waiting):
            for each, point in zip(waiting, found, strict=True):
                each.point = point if each.is_clean else None
        else:
            for each in self.volumes[name].removals:
                each.point = None
        self.others |= {*found}

    def drop(self, name: str) -> None:
        self.offload(name, drop_hot=True)

    def merge(self, name: str) -> None:
        self.topic(name)
        self.archive(name).upkeep.compact(name)

    def erase(self, name: str) -> None:
        self.topic(name)
        self.offload(name)
        self.archive(name).upkeep.erase(name)

    def hand(self, name: str) -> None:
        """Let the other directory write the name from here on."""
        self.offload(name)
        former, self.writer[name] = self.writer[name], 1 - self.writer[name]
        self.archive(name).replication.take_over(name)
        self.follow(former, name)
        self.repeatable[name].clear()
        self.note_writer(name)

    def fork(self, name: str) -> None:
        if len(self.volumes) < 4:
            self.offload(name)
            number = next(self.numbers)
            self.archive(name).restore(name, to="head", name=f"b{number}")
            self.volumes[f"t@b{number}"] = self.volumes[name].fork(number)
            self.writer[f"t@b{number}"] = self.writer[name]

    def promote(self, name: str) -> None:
        branch = name if name != "t" else self.chance.choice(sorted(self.volumes.keys() - {"t"}))
        for name in ("t", branch):
            self.offload(name)
        keep, carry = f"t@k{next(self.numbers)}", self.ttl_ms is None and self.chance.random() < 0.7
        place, side = self.chance.randrange(2), self.volumes[branch]
        branches = self.places[place][1].branches
        try:
            done = branches.promote_branch("t", branch[2:], keep=keep[2:], carry=carry, leave=not carry)
        except Conflict as refused:
            if "has other records than an earlier" not in str(refused):
                raise
            assert not side.numbers.issuperset(side.copies.values()), self.told
            self.made["refused carries"] += 1
            if place != self.writer[branch]:  # it took the branch over to compare
                self.follow(self.writer[branch], branch)
                self.writer[branch] = place
                self.repeatable[branch].clear()
            return
        assert done.after_fork is not None
        side.is_logs = side.is_logs or self.places[place][0].has_topic("t")  # the writer of main took it over
        if carry:
            self.carry(self.volumes["t"], side, done.after_fork.shared_seq, done.carried)
            # With records to look at, the branch was taken over, also if it has all of them.
            side.is_logs = side.is_logs or done.after_fork.left.appended > 0
            self.clock.ms += 1  # the next carry tells records that took the seqs of these by their ms (CARRY-3)
        self.writer[branch] = self.writer["t"]
        for place in (0, 1):
            for name in ("t", branch):
                self.follow(place, name)
            self.places[place][1].replication.sync("t")
        for known in (self.volumes, self.writer):
            known[keep], known["t"] = known.pop("t"), known.pop(branch)  # type: ignore[index]  # of one type each
        self.repeatable.pop(branch, None)
        self.made["promotions"] += 1
        if self.chance.random() < 0.5:
            self.take_back(branch, keep)

    def take_back(self, branch: str, keep: str) -> None:
        """Undo the promotion, change the branch, and perhaps promote one again."""
        log, archive = self.places[self.writer["t"]]
        archive.history.undo()
        self.volumes[keep].is_logs = self.volumes[keep].is_logs or log.has_topic("t")
        for known in (self.volumes, self.writer):
            known[branch], known["t"] = known.pop("t"), known.pop(keep)  # type: ignore[index]  # of one type each
        for place in (0, 1):
            for name in ("t", branch):
                self.follow(place, name)
            self.places[place][1].replication.sync("t")
        self.repeatable.pop("t", None)
        self.made["promotions undone"] += 1
        for change in self.chance.choices([self.truncate, self.append, self.delete, self.forward], k=2):
            change(branch)
        self.promote(branch)

    def carry(self, main: Volume, side: Volume, shared_seq: int, carried: range) -> None:
        """Give the branch copies of main's records, in order."""
        numbers, origin = side.numbers, (main.key, shared_seq)
        live_copies = {side.records[seq].number for seq in side.live}.intersection(side.copies.values())
        is_hidden = side.copied_seq in side.records.keys() - side.live
        is_there = is_hidden or bool(live_copies) or max(side.copies.values(), default=0) in numbers
        copies = dict(side.copies) if side.origin == origin and is_there else {}
        there = {number for number, copy in copies.items() if is_hidden or copy in numbers}
        live = [main.records[seq] for seq in sorted(main.live) if seq >= main.evict_floor]
        missing = [each for each in live if each.number not in numbers | there]
        first = side.head_seq + 1
        assert carried == range(first, first + len(missing)) or not (carried or missing), self.told
        for seq, each in zip(carried, missing, strict=True):
            copy = replace(each, ms=self.clock.ms, number=next(self.numbers), is_own=True)
            copies[each.number] = copy.number
            side.add(seq, copy)
        if missing:
            # What is deleted by now counts as carried.
            here = {number: copy for number, copy in copies.items() if copy in side.numbers}
            copies = dict.fromkeys(main.numbers, max(here.values())) | here
            side.copies, side.copied_seq, side.origin, side.is_logs = copies, side.head_seq, origin, True
            self.made["carried"] += len(missing)

    def follow(self, place: int, name: str) -> None:
        """Make the directory a replica of the name."""
        if self.places[place][0].has_topic(name):
            self.places[place][1].replication.reset(name)

    def reopen(self, _: str) -> None:
        self.stack.close()
        settings = offload.Settings().with_parts(OffloadSettings(merge_count=2))
        self.places: list[tuple[Log, Archive]] = []
        for number in (0, 1):
            log = self.stack.enter_context(seglog.open(self.path / str(number), clock=self.clock, settings=SMALL_WAL))
            archive = offload.attach(log, store=self.store, clock=self.clock, settings=settings)
            self.places.append((log, self.stack.enter_context(archive)))
