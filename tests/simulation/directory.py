"""A data directory of a simulation. Its log, its archive and its local catalog are the code that ships.

    the log            on a disk in memory (tests/faults/disk.py). A crash is a kill or a power cut. A power cut keeps
                       any part of the bytes that were not synced
    the local catalog  SQLite in memory
    the store          through `Way`: every request may fail, be late, or be the last one of the process

At the requests of an offload, a merge, a sync and a reset, the process also appends, deletes, truncates and seals.
These calls stand for its other threads. Each directory records its changes in its `Journal`s. The model judges by them.

The simulation does not cover these subjects. `tests/seglog` and `tests/promises` test them.

    two threads inside the log at the same time; the daemon and its workers; the cache of cold reads on the disk; a
    second remote; evictions; retention; ephemeral records; labels other than tags; zstd; errors of the disk
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import offload
import seglog
from catalog import MAIN, Branches, ForkPoint, Handle, Vid
from catalog.errors import (
    BranchCollected,
    BranchExists,
    Diverged,
    Fenced,
    HistoryCollected,
    Missing,
    NoSuchBranch,
    NoSuchObject,
    OutOfWindow,
)
from catalog.format.control import DEAD
from catalog.format.encoding import StoredCommit, decode_commit_at
from catalog.format.keys import Key, lsn_of, volume_of
from offload import Archive, ColdSettings, OffloadSettings
from offload.errors import Conflict as OffloadConflict
from offload.errors import OtherRemote
from offload.errors import Unavailable as OffloadUnavailable
from offload.handles import split_name
from offload.settings import CatalogSettings
from offload.write.publisher import Published
from seglog import ConcurrentModification, DeleteOp, Log, LogSettings, Record, SeqSet
from seglog.engine.work_thread import InCaller
from seglog.format.frame import read_header, record_of
from tests.faults.disk import SimulatedDisk
from tests.seams.archive import context_of
from tests.simulation.database import path_of
from tests.simulation.journal import Entry, Journal, Op, State
from tests.simulation.model import Broken, Held, Model
from tests.simulation.schedule import DAY_MS, Crashed, Schedule
from tests.simulation.tasks import TOPIC, Member

__all__ = ["Directory", "seqs_of"]

T = TypeVar("T")

# A fenced directory goes on appending here, so that offloads and resets meet records that nobody else has.
_LOG = LogSettings(segment_max_events=5, wal_file_bytes=1 << 16, max_record_bytes=256, append_when_fenced=True)
_COLD = ColdSettings(cache_bytes=0, connections=1, get_attempts=1)
_UPKEEP = CatalogSettings(checkpoint_commits=4)
_BLOCK_BYTES = 1024  # small, so that an object of a few records is a multipart upload
_VALUE_BYTES = (8, 8, 8, 100)
_DISK_RATE = 0.1  # multiplies the crash rate of requests, because a log call has many effects on its disk
_MEANWHILE_RATE = 0.04


def seqs_of(op: DeleteOp) -> frozenset[int] | None:
    return None if op.seqs is None else frozenset(seq for seq in range(1, op.seqs.end) if seq in op.seqs)


def _settings() -> OffloadSettings:
    settings = OffloadSettings(codec="none", concurrency=1, merge_below_bytes=1 << 20, merge_count=3)
    object.__setattr__(settings, "block_size", _BLOCK_BYTES)
    return settings


_OFFLOAD = _settings()


class Directory(Member):
    """A data directory that writes the topic and its branches.

    Several directories share a topic. One writes it. The others follow it, or learn that they are fenced.
    """

    turns = 60
    # The widest range allowed. GC judges age by segment ids, and the volume says how old an id may be.
    clock_range_ms = (-30 * DAY_MS, DAY_MS)

    def __init__(self, schedule: Schedule, model: Model, name: str) -> None:
        self.journals: dict[str, Journal] = {}
        self.under_way: dict[str, Journal] = {}  # the journal of a topic after the log call that is running
        self.may_begin: set[str] = set()
        self.may_leave: dict[str, str | None] = {}
        self.resetting: dict[str, str | None] = {}
        self.parted: set[str] = set()
        self.floors: dict[str, int] = {}
        self.vids: dict[str, Vid] = {}
        self.topic_ids: dict[str, int] = {}  # of the topics that the journals tell of
        self.read_back: Counter[str] = Counter()
        self.disk = SimulatedDisk()
        self.made = 0
        self.branches = 0
        self.forks = 0
        model.journals[name] = self.journals
        super().__init__(schedule, model, name)

    # ------------------------------------------------------------ a process of the directory

    def begin(self) -> None:
        self.store.on_commit = self._on_commit
        self.store.read_back = self.read_back
        self.disk.note = self._on_effect
        self.log: Log = seglog.open(
            path_of(self.name), files=self.disk, clock=self.clock, settings=_LOG, upkeep=InCaller
        )
        self.archive: Archive = offload.attach(
            self.log,
            store=self.store,
            settings=offload.Settings().with_parts(_OFFLOAD, _COLD, _UPKEEP),
            clock=self.clock,
        )
        self._recall()

    def prepared(self, handle: dict[str, Any], attempt: dict[str, Any] | None) -> None:
        self.model.prepared(self.name, handle, attempt)

    def _on_commit(self, key: Key, body: bytes) -> None:
        if not self.database.has_pending(body):
            vid, lsn = volume_of(key), lsn_of(key)
            assert vid is not None
            assert lsn is not None
            stored = decode_commit_at(body, vid, lsn)
            self._hold(self._may_be_off_record(stored), f"{key} is not on record before it is sent")

    def _may_be_off_record(self, _: StoredCommit) -> bool:
        """Return whether the directory may send a commit that it has not put on record."""
        return False

    def bury(self) -> None:
        """Replace the disk with one that a kill or a power cut may leave."""
        moment = self.disk.moment()
        if self.schedule.chance(0.5):
            self.disk = SimulatedDisk.resume(moment)
        else:
            self.disk = SimulatedDisk(moment.image([each for each in moment.pending if self.schedule.chance(0.5)]))

    def _on_effect(self, _: SimulatedDisk) -> None:
        if self.is_dead:
            raise Crashed
        if self.schedule.chance(self.schedule.crash_rate * _DISK_RATE):
            self.schedule.kill(self)

    def _recall(self) -> None:
        """Check each topic after a restart: the call that the crash interrupted happened or did not happen."""
        for name in sorted({*self.journals, *self.under_way, *self.log.topics()}):
            journal, after = self.journals.get(name), self.under_way.pop(name, None)
            if journal is not None and self._is_anew(name):
                self._settle(name)
                continue
            if not self.log.has_topic(name):
                if journal is not None:
                    self._hold(name in self.may_leave, f"{name} is not there any more")
                    self._left(name, journal, self.may_leave.get(name))
                continue
            if journal is None and after is None:
                self._hold(name in self.may_begin, f"{name} came from nowhere")
                self._adopt(name)
                continue
            fits = [each for each in (journal, after) if each is not None and self._fits(name, each)]
            if not fits and journal is not None and self._goes_on(name, journal):
                self._adopt(name)
                continue
            self._hold(bool(fits), f"{name} is neither as it was before the crash nor after what was done")
            is_listed = journal is None or after is None or self._lists_newest(name, journal, after)
            self.journals[name] = fits[-1] if is_listed else fits[0]
        self.may_leave.clear()
        self._look()

    def _goes_on(self, name: str, journal: Journal) -> bool:
        """Return True if a repeated reset had appended new records to the branch before the crash.

        Its older records must be unchanged.
        """
        branch = split_name(name)[1]
        before = {seq: entry for seq, entry in self._hot(name).items() if seq <= journal.head}
        floor = self.log.topic(name).inner.hot_floor
        was = {seq: entry for seq, entry in journal.shown.items() if seq >= floor}
        return branch in self.resetting.values() and before == was and self.log.topic(name).head_seq > journal.head

    def _fits(self, name: str, journal: Journal) -> bool:
        topic = self.log.topic(name)
        hot = {seq: entry for seq, entry in journal.shown.items() if seq >= topic.inner.hot_floor}
        return topic.head_seq == journal.head and self._hot(name) == hot

    def _lists_newest(self, name: str, journal: Journal, after: Journal) -> bool:
        """Return False if `after` has a delete that the log does not list. A delete may take no record, so both fit."""
        new = after.untold[len(journal.untold) :]
        listed = {op.at_seq for op in self.log.topic(name).inner.delete_ops()}
        return all(op.cut is not None or op.made_at in listed for op in new)

    def _hot(self, name: str) -> State:
        topic = self.log.topic(name)
        records = topic.read(topic.inner.hot_floor, gaps=True)
        return {each.seq: Entry(*each[:4]) for each in records if isinstance(each, Record)}

    def _adopt(self, name: str) -> None:
        """Start a journal from the log's content, for a topic that a takeover or a reset made.

        `_left` checks the records of a reset.
        """
        topic = self.log.topic(name)
        self.topic_ids[name] = topic.inner.topic_id
        ops = tuple(
            Op(number, op.at_seq, op.at_seq, op.before, op.tag, seqs_of(op))
            for number, op in enumerate(topic.inner.delete_ops())
        )
        entries: State = {}
        for frame in topic.inner.frames(topic.inner.hot_floor, topic.head_seq) if topic.inner.record_count_hot else ():
            record = record_of(frame, 0, read_header(frame))
            entries[record.seq] = Entry(*record[:4])
        self.journals[name] = Journal(
            topic.first_seq, topic.head_seq, topic.last_ts_ms, entries, self._hot(name), ops, ops
        )

    @contextlib.contextmanager
    def _log_does(self, name: str, after: Journal) -> Iterator[None]:
        """Wrap a log call that gives the topic the journal `after`. A crash leaves the old journal or the new one."""
        self.under_way[name] = after
        yield
        self.journals[name] = self.under_way.pop(name)
        self.topic_ids.setdefault(name, self.log.topic(name).inner.topic_id)

    # ------------------------------------------------------------ actions

    def turn(self) -> None:
        name, begun_ms = self._name(), self.schedule.now_ms
        branch = split_name(name)[1]
        known = self.model.names.get((TOPIC, branch))
        try:
            self._act(name)
        except (NoSuchBranch, OtherRemote) as error:
            is_the_same = self.model.names.get((TOPIC, branch)) is known
            is_there = name == TOPIC or (is_the_same and branch in self._alive())
            self._hold(not is_there, f"{name} is said to be gone: {error}")
        except NoSuchObject:
            # If the process sleeps for longer than the grace, GC may collect the objects that it uses. A writer that
            # does not know yet that it is fenced may begin with a state that has left the window.
            handle = context_of(self.archive).handles.find(name)
            is_stale = handle is not None and not self.model.is_promised(ForkPoint(handle.vid, handle.lsn))
            if self.schedule.now_ms - begun_ms < self.model.grace_ms and not is_stale:
                raise
        except Diverged as error:
            self._check_parted(name, error)
            self.parted.add(name)
        except (OffloadConflict, OffloadUnavailable, OutOfWindow, ConcurrentModification):
            pass
        finally:
            self.store.meanwhile = None
            if not self.is_dead:
                for each in sorted(self.may_leave):
                    self._settle(each)
                self._look()

    def _name(self) -> str:
        if self.resetting:
            return self.random.choice(sorted(self.resetting))
        others = sorted({*self.journals, *(f"{TOPIC}@{branch}" for branch in self._alive())} - {TOPIC})
        return self.random.choice(others) if others and self.schedule.chance(0.25) else TOPIC

    def _alive(self) -> set[str]:
        """Return the branches that exist according to the acked answers."""
        return {
            branch
            for (_, branch), values in self.model.names.items()
            if branch != MAIN and len(values) == 1 and all(each.vid and each.deleted_at_ms is None for each in values)
        }

    def _act(self, name: str) -> None:
        drawn = self.random.random()
        if name in self.resetting or (name in self.parted and drawn < 0.6):
            self._reset(name)
        elif name not in self.journals:
            self._join(name, drawn)
        elif drawn < 0.55:
            self._write(name)
        elif drawn < 0.63:
            self._delete(name)
        elif drawn < 0.69:
            self._truncate(name)
        elif drawn < 0.77:
            self._with_others(lambda: self.archive.upkeep.compact(name))
        elif drawn < 0.84:
            self._sync(name)
        elif drawn < 0.88:
            self._take_over(name)
        elif drawn < 0.9:
            self.archive.upkeep.drop_copies()
        elif drawn < 0.94:
            self.archive.close()
            self.log.close()
            self.begin()
        else:
            self._read(name)

    def _join(self, name: str, drawn: float) -> None:
        """Act on a topic that this directory does not write: create it, take it over, sync it or read it."""
        is_made = (TOPIC, MAIN) in self.model.names
        if name == TOPIC and not is_made and not self.archive.replication.is_replica(name):
            self._write(name)
        elif drawn < 0.4:
            self._take_over(name)
            self._write(name)
        elif drawn < 0.8:
            self.archive.replication.sync(name)
        else:
            self._read(name)

    def _write(self, name: str) -> None:
        """Append to the topic, then mostly seal and offload it."""
        for _ in range(self.random.randrange(1, 4)):
            self._append(name)
        if self.schedule.chance(0.85):
            self.log.topic(name).seal()
            self._push(name)

    def _append(self, name: str) -> None:
        before = self.journals.get(name) or Journal(1, 0, 0)
        values = [self._value() for _ in range(self.random.randrange(1, 4))]
        tag = self.random.choice(("a", "b", None))
        with self._log_does(name, before.appended(self.clock.now_ms(), values, tag)):
            seqs = self.log.topic(name).append(values, tag=tag)
        self._hold(seqs[0] == before.head + 1, f"an append to {name} got {seqs} after {before.head}")

    def _value(self) -> bytes:
        self.made += 1
        return b"%s %d " % (self.name.encode(), self.made) + bytes(self.random.choice(_VALUE_BYTES))

    def _push(self, name: str) -> None:
        drop_hot = self.schedule.chance(0.5)
        result = self._with_others(lambda: self.archive.offload(name, drop_hot=drop_hot))
        self._acked(name, result.published)

    def _acked(self, name: str, published: tuple[Published, ...]) -> None:
        vid = self._vid(name)
        self.model.named(*split_name(name), vid)
        for each in published:
            self.model.ack(self.name, vid, each.lsn)

    def _delete(self, name: str) -> None:
        journal, topic = self.journals[name], self.log.topic(name)
        drawn = self.random.random()
        if drawn < 0.4:
            before = max(1, journal.head - self.random.randrange(8))
            with self._log_does(name, journal.deleted(self.clock.now_ms(), before=before)):
                topic.delete(before=before)
        elif drawn < 0.7 or journal.head < 2:
            tag = self.random.choice("ab")
            with self._log_does(name, journal.deleted(self.clock.now_ms(), tag=tag)):
                topic.delete(tag=tag)
        else:
            seqs = frozenset(
                range(2, journal.head + 1)[-8 :: self.random.choice((1, 1, 2))][: self.random.randint(1, 4)]
            )
            tag = self.random.choice("ab") if self.schedule.chance(0.3) else None
            with self._log_does(name, journal.deleted(self.clock.now_ms(), tag=tag, seqs=seqs)):
                topic.delete(seqs=SeqSet.of_seqs(sorted(seqs)), tag=tag)
        if self.schedule.chance(0.5):
            self._push(name)

    def _truncate(self, name: str) -> None:
        self._cut(name)
        if self.schedule.chance(0.5):
            self._push(name)

    def _cut(self, name: str) -> None:
        journal = self.journals[name]
        cut = journal.head - self.random.randrange(5)
        if cut >= 1:
            with self._log_does(name, journal.truncated(self.clock.now_ms(), cut)):
                self.log.topic(name).truncate(cut)

    def _take_over(self, name: str) -> None:
        self.may_begin.add(name)
        self.archive.replication.take_over(name)
        self.model.named(*split_name(name), self._vid(name))
        if name not in self.journals:
            self._adopt(name)
            handle = self._handle(name)
            head = self.model.volumes[handle.vid].head_seq(handle.lsn)
            first = self.journals[name].first_seq
            self._hold(first == head + 1, f"{name} begins with {first}, and its volume ends at {head}")
        self.parted.discard(name)

    def _fork(self, point: ForkPoint | None) -> None:
        """Make a branch of the topic at a point, if there is one. Its name tells that this directory made it."""
        if point is None:
            return
        self.forks += 1
        branch = f"{self.name}-try-{self.forks}"
        self.model.names[TOPIC, branch] = {Held(None), Held(None, 0)}
        try:
            vid = Branches(self.volumes, self.name).create(TOPIC, branch, point, now_ms=self.clock.now_ms())
        except Missing:
            return
        except HistoryCollected as error:
            if "before the volume had a name" not in str(error):
                raise
        else:
            self.model.names[TOPIC, branch] = {Held(vid)}

    def _sync(self, name: str) -> None:
        """Sync the topic. If the directory has no records of its own there, it may become a follower."""
        self.may_leave[name] = None
        synced = self._with_others(lambda: self.archive.replication.sync(name))
        self._settle(name)
        self._acked(name, synced.published)

    def _reset(self, name: str) -> None:
        """Reset the topic. Later calls repeat an unfinished reset with the same branch."""
        if name not in self.resetting:
            self.branches += 1
            self.resetting[name] = f"{self.name}-{self.branches}"
        branch = self.resetting[name]
        saved = f"{split_name(name)[0]}@{branch}"
        self.may_leave[name] = branch
        self.may_begin.add(saved)
        self.model.names.setdefault((TOPIC, str(branch)), {Held(None), Held(None, 0)})
        try:
            result = self._with_others(lambda: self.archive.replication.reset(name, as_branch=branch))
        except BranchExists:
            del self.resetting[name]
            raise
        finally:
            if not self.is_dead and self.log.has_topic(saved):
                self._adopt(saved)
        if result.branch is not None:
            self.model.named(TOPIC, result.branch, self._vid(saved))
        del self.resetting[name]
        self.parted.discard(name)
        self._settle(name)
        self.model.counts["resets"] += 1
        self._hold(not self.local.attempts(name), f"{name} was reset, and has attempts on record")

    def _settle(self, name: str) -> None:
        is_left = name in self.journals and (self._is_anew(name) or not self.log.has_topic(name))
        branch = self.may_leave.pop(name, None)
        if is_left:
            self._left(name, self.journals[name], branch)
            if self.log.has_topic(name):
                self._adopt(name)

    def _is_anew(self, name: str) -> bool:
        """Return True if the directory dropped the topic that the journal tells of, and took it over again."""
        is_other = self.log.has_topic(name) and self.topic_ids.get(name, 0) not in {
            0,
            self.log.topic(name).inner.topic_id,
        }
        self._hold(not is_other or name in self.may_leave, f"{name} is another topic than it was")
        return is_other

    def _with_others(self, act: Callable[[], T]) -> T:
        """Run `act`. At its requests, append, delete, truncate and seal, as other threads of the process would."""
        self.read_back.clear()
        self.store.meanwhile = self._meanwhile
        try:
            return act()
        finally:
            self.store.meanwhile = None

    def _meanwhile(self) -> None:
        if not self.journals or not self.schedule.chance(_MEANWHILE_RATE):
            return
        name = self.random.choice(sorted(self.journals))
        is_being_made = any(name == f"{split_name(each)[0]}@{branch}" for each, branch in self.resetting.items())
        if not self.log.has_topic(name) or name in self.under_way or is_being_made or self._is_anew(name):
            return
        drawn = self.random.random()
        if drawn < 0.6:
            self._append(name)
        elif drawn < 0.8:
            self.log.topic(name).seal()
        elif drawn < 0.9:
            journal, tag = self.journals[name], self.random.choice("ab")
            with self._log_does(name, journal.deleted(self.clock.now_ms(), tag=tag)):
                self.log.topic(name).delete(tag=tag)
        else:
            self._cut(name)

    # ------------------------------------------------------------ what must hold

    def _read(self, name: str) -> None:
        """Read the topic over both tiers and compare the records with the journal and the volume."""
        handle = context_of(self.archive).handles.find(name)
        if handle is not None and handle.pending_body is not None:
            return  # the log may show an undo that the handle does not have yet
        volume = None if handle is None else self.model.volumes[handle.vid]
        below: State = {} if volume is None or handle is None else volume.state(handle.lsn)
        journal = self.journals.get(name)
        wanted = below if journal is None else journal.all_shown(below)
        try:
            found = {each.seq: Entry(*each[:4]) for each in self.archive.read(name)}
        except Missing as error:
            if handle is not None and self.model.is_promised(ForkPoint(handle.vid, handle.lsn)):
                raise Broken(f"{self.name} cannot read {name}: {error}") from error
            return
        if handle is None and journal is None:
            return  # the read used the remote's newest state, which may have changed since
        self._hold(found == wanted, f"{name} reads as something else: {sorted(found)}, {sorted(wanted)}")

    def _look(self) -> None:
        """Check after each turn that the log shows the journal, and that released records were read back first."""
        for name, journal in self.journals.items():
            if not self.log.has_topic(name):
                continue
            self._hold(self._fits(name, journal), f"{name} in the log is not what was appended")
            floor, before = self.log.topic(name).inner.hot_floor, self.floors.get(name, journal.first_seq)
            if floor > before:
                self._check_released(name, range(before, min(floor, journal.head + 1)))
            self.floors[name] = floor

    def _check_released(self, name: str, seqs: range) -> None:
        """Check that the segments which replace released hot copies were read back before the release.

        A seq that no kept state shows needs no replacement.
        """
        volume = self.model.volumes[self._vid(name)]
        kept = [volume.state(lsn) for lsn in range(min(volume.boundary, len(volume.pasts)), len(volume.pasts) + 1)]
        read_back = self.read_back
        segments = self.model.segments.get(self._vid(name), [])
        for seq in seqs:
            is_proven = not any(seq in state for state in kept) or any(
                first <= seq <= last and all(read_back.get(key, 0) >= size for key, size in sizes.items())
                for first, last, sizes in segments
            )
            self._hold(is_proven, f"the hot copy of seq {seq} of {name} went before a read of what replaces it")

    def _left(self, name: str, journal: Journal, branch: str | None) -> None:
        """Check that the branch has every record that no volume ever had, after the topic left the log."""
        del self.journals[name], self.topic_ids[name]
        floor = self.floors.pop(name, journal.first_seq)
        volume = self.model.volumes[self.vids[name]] if name in self.vids else None
        known = frozenset[bytes]() if volume is None else volume.values
        # If the volume was collected, the hot copies are the last ones, unless this call released some before.
        is_last = volume is not None and volume.boundary == DEAD and not self.read_back
        lost = {
            entry.value: entry.tag
            for seq, entry in journal.shown.items()
            if entry.value not in known or (is_last and seq >= floor)
        }
        if not lost:
            return
        saved = f"{split_name(name)[0]}@{branch}"
        self._hold(branch is not None and self.log.has_topic(saved), f"records of {name} that only it had are gone")
        found = {entry.value: entry.tag for entry in self._hot(saved).values()}
        missing = [value for value, tag in lost.items() if value not in found or found[value] != tag]
        self._hold(not missing, f"{saved} does not have {missing} of {name}")
        deleted = {entry.value for entry in journal.entries.values()} - {each.value for each in journal.shown.values()}
        self._hold(not deleted & found.keys(), f"{saved} shows again what was deleted from {name}")

    def _check_parted(self, name: str, error: Diverged) -> None:
        """Check that a Diverged error has a cause.

        The causes: another directory has written the volume, with an epoch that is high enough if the error is Fenced.
        Or this directory has, by another name that the volume has during a promotion. Or the volume is collected. Or
        the boundary passed a commit of this directory whose answer was lost, so the directory cannot know any more that
        the commit is its own.
        """
        handle = context_of(self.archive).handles.find(name)
        vid = self._vid(name) if handle is not None else None
        if vid is None:
            return
        volume = self.model.volumes[vid]
        if isinstance(error, BranchCollected):
            self._hold(volume.boundary == DEAD, f"{vid} is said to be collected")
            return
        intents = [(past, self.model.intents.get(past.stored.hash)) for past in volume.pasts]
        others = [past for past, each in intents if each and (each.writer, each.topic) != (self.name, name)]
        passed = [each for each in volume.pasts[handle.lsn :] if each.stored.commit.lsn < volume.boundary]
        is_unsure = any(self.model.author(each) == self.name for each in passed) and not isinstance(error, Fenced)
        self._hold(bool(others) or is_unsure, f"{name} is said to have parted, and nobody else has written {vid}")
        if isinstance(error, Fenced):
            epochs = [past.stored.commit.epoch for past in others]
            self._hold(max(epochs) >= error.epoch, f"{name} is said to be fenced by epoch {error.epoch} of {epochs}")

    def _handle(self, name: str) -> Handle:
        handle = context_of(self.archive).handles.find(name)
        assert handle is not None, f"{name} has no handle"
        return handle

    def _vid(self, name: str) -> Vid:
        vid = self.vids[name] = self._handle(name).vid
        return vid

    def _hold(self, is_so: bool, what: str) -> None:
        if not is_so:
            raise Broken(f"{self.name}: {what}")
