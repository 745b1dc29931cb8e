"""The expected results of a simulation: a plain model of every volume, and the judge of every change in the store.

The model takes the effect of a commit from its writer's journal. The effect is the records that the writer appended
under those seqs, or the delete or truncation that is due. The model reads the objects that landed. It compares the seq,
time, tag and value of each record.

The judge checks each object when it lands and when it is deleted (invariants of DESIGN section 6):

MODEL-1  A commit continues the records of its volume. No record is missing, and none is there twice. The writer commits
    a delete or truncation before it commits the records appended after it.
MODEL-2  A writer puts a commit on its own record before it sends the commit, with the same bytes. Each epoch has one
    writer.
MODEL-3  Every object that a commit names is whole in the store before the commit's key exists. The object holds the
    records that the commit claims.
MODEL-4  Each (volume, LSN) has one commit at most. Races, late requests and repeated requests never give it a second
    hash. LSNs are dense. Each commit continues the one before it. Epochs never fall. Boundaries only rise. No commit
    adds a segment that is older than the collected time of an earlier commit.
MODEL-5  Every state that a name, a tag, a pin or the window promises is there at any time. It reads back as in the
    model. No volume that a name leads to is closed.
MODEL-7  An acked commit is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pyroaring import BitMap

from catalog import Commit, CommitKind, ForkPoint, SegmentRef, SegmentView, Snapshot, Vid, Volumes
from catalog.errors import CatalogError
from catalog.format import keys
from catalog.format.commit import NO_PARENT
from catalog.format.control import DEAD
from catalog.format.encoding import StoredCommit, decode_commit_at
from catalog.format.ids import Sid
from catalog.format.keys import Key
from catalog.format.small_objects import decode_boundary, decode_control_of
from catalog.gc.policy import GcPolicy
from catalog.objects.store_time import MOST_OFF_MS
from offload.read.cold_reader import ColdReader
from offload.settings import ColdSettings
from tests.simulation.ground import Ground
from tests.simulation.journal import Entry, Journal, Op, State

__all__ = ["COLD", "Broken", "Held", "Intent", "Model", "records_of"]

_NO_CUT = 2**63
COLD = ColdSettings(cache_bytes=0, connections=1, get_attempts=1)


class Broken(AssertionError):
    """A promise is broken."""


def records_of(reader: ColdReader, snapshot: Snapshot) -> State:
    """Return the records that `snapshot` shows."""
    return {each.seq: Entry(*each[:4]) for each in reader.records(snapshot, 1, snapshot.bounds.head_seq)}


@dataclass(frozen=True, slots=True)
class Back:
    """The effect of an undo of the commit `undone`, perhaps of a parent: it shows `records` again.

    The records of `whole`, which may be deleted, exist again. The volume then ends at `head_seq`.
    """

    undone: ForkPoint
    records: State
    whole: State
    head_seq: int


@dataclass(frozen=True, slots=True)
class Intent:
    """The effect of a commit on record: its writer, the writer's topic, and the change to the volume's records.

    `named` are the records that a delete names, also those that were deleted before.
    """

    writer: str
    topic: str
    op: Op | None = None
    named: State = field(default_factory=State)
    added: State | None = None
    back: Back | None = None

    def after(self, state: State) -> State:
        if self.back is not None:
            return state | self.back.records
        if self.added is not None:
            return state | self.added
        return state if self.op is None else self.op.left(state)


@dataclass(slots=True)
class Past:
    """A commit that landed, and the volume's records after it.

    `state` holds the records that the commit shows. `whole` holds the deleted records too.
    """

    stored: StoredCommit
    state: State
    whole: State
    head_seq: int
    max_ts_ms: int
    collected_before_ms: int


@dataclass(slots=True)
class Volume:
    """A volume of the model. `start` is its state before its first own commit."""

    start: Past | None
    parent: ForkPoint | None
    start_hash: bytes
    start_state: State
    start_whole: State
    start_head_seq: int
    pasts: list[Past] = field(default_factory=list[Past])
    boundary: int = 0
    values: set[bytes] = field(default_factory=set[bytes])
    """The values of all records that any commit showed."""
    writers: dict[int, str] = field(default_factory=dict[int, str])
    """The writer of each epoch."""
    replaced: set[int] = field(default_factory=set[int])
    """The LSNs where GC deleted the commit, and another one landed later."""

    def state(self, lsn: int) -> State:
        return self.pasts[lsn - 1].state if lsn else self.start_state

    def whole(self, lsn: int) -> State:
        return self.pasts[lsn - 1].whole if lsn else self.start_whole

    def head_seq(self, lsn: int) -> int:
        return self.pasts[lsn - 1].head_seq if lsn else self.start_head_seq

    def promised(self, since_ms: int) -> range:
        """Return the LSNs whose state was the newest at some time since `since_ms`."""
        first = len(self.pasts)
        while first and self.pasts[first - 1].stored.commit.at_ts_ms > since_ms:
            first -= 1
        return range(first, len(self.pasts) + 1)


@dataclass(frozen=True, slots=True)
class Held:
    """A value that a lookup of a branch's name may find. If `vid` is None, the name is absent."""

    vid: Vid | None
    deleted_at_ms: int | None = None


class Model:
    """The model of the whole store, and its judge.

    `names` and `tags` hold, for each name, every value that is possible. A lost answer leaves more than one value.
    `moved` holds every volume of a name that a promotion has changed, and `given_up` the former volume of a name whose
    undelete came too late. `pins` holds the acked pins.
    """

    def __init__(self, ground: Ground, now_ms: Callable[[], int], window_ms: int, grace_ms: int) -> None:
        self.ground = ground
        self._now_ms = now_ms
        # The clock of a GC run may be ahead by `MOST_OFF_MS`.
        self.window_ms = window_ms - MOST_OFF_MS
        self.policy = GcPolicy(window_ms // 1000, grace_ms // 1000)
        self.grace_ms = grace_ms
        self.volumes: dict[Vid, Volume] = {}
        self.intents: dict[bytes, Intent] = {}
        self.sent: dict[Sid, State] = {}
        self.segments: dict[Vid, list[tuple[int, int, dict[Key, int]]]] = {}
        self.journals: dict[str, dict[str, Journal]] = {}
        self.acked: set[tuple[Vid, int, bytes]] = set()
        self.names: dict[tuple[str, str], set[Held]] = {}
        self.moved: dict[tuple[str, str], set[Vid]] = {}
        self.given_up: dict[tuple[str, str], Vid | None] = {}
        self.tags: dict[tuple[str, str], set[ForkPoint | None]] = {}
        self.pins: dict[Key, tuple[ForkPoint, int]] = {}
        self.checked = 0
        self.commits = 0
        self.counts: Counter[str] = Counter()
        self.gone = 0
        self.collections = 0
        self._reader = ColdReader(ground, COLD)
        self.refs: dict[Sid, tuple[Vid, SegmentRef]] = {}
        self._contents: dict[Sid, State] = {}
        ground.on_body = self._on_body
        ground.on_gone = self._on_gone

    # ------------------------------------------------------------ what lands

    def _on_gone(self, key: Key) -> None:
        self.gone += 1

    def _on_body(self, key: Key, body: bytes) -> None:
        self.ground.came_ms.setdefault(key, self._now_ms())
        vid = keys.volume_of(key)
        if vid is None:
            return
        if key == keys.control_key(vid):
            self._on_control(vid, body)
        elif key == keys.boundary_key(vid):
            lsn = decode_boundary(body, vid).lsn
            self._hold(lsn >= self.volumes[vid].boundary, f"{key} falls to {lsn}")
            self.volumes[vid].boundary = lsn
            is_named = vid in self._named(self._now_ms() - self.window_ms)
            self._hold(lsn < DEAD or not is_named, f"{vid} is closed, and has a name")
        elif "/log/" in key:
            lsn = keys.lsn_of(key)
            assert lsn is not None
            self._on_commit(key, vid, decode_commit_at(body, vid, lsn))

    def _on_control(self, vid: Vid, body: bytes) -> None:
        if vid in self.volumes:
            return
        parent = decode_control_of(body, vid).parent
        if parent is None:
            self.volumes[vid] = Volume(None, None, NO_PARENT, {}, {}, 0)
            return
        above = self.volumes[parent.vid]
        self.volumes[vid] = Volume(
            start=above.pasts[parent.lsn - 1] if parent.lsn else above.start,
            parent=parent,
            start_hash=above.pasts[parent.lsn - 1].stored.hash if parent.lsn else above.start_hash,
            start_state=_up_to(parent.seq, above.state(parent.lsn)),
            start_whole=_up_to(parent.seq, above.whole(parent.lsn)),
            start_head_seq=min(above.head_seq(parent.lsn), _NO_CUT if parent.seq is None else parent.seq),
        )

    def _on_commit(self, key: Key, vid: Vid, stored: StoredCommit) -> None:
        volume, commit = self.volumes[vid], stored.commit
        if commit.lsn <= len(volume.pasts):
            is_same = volume.pasts[commit.lsn - 1].stored.hash == stored.hash
            self._hold(is_same or commit.lsn < volume.boundary, f"{key} is another commit than it was")
            if not is_same:
                volume.replaced.add(commit.lsn)
            return
        if commit.lsn < volume.boundary:
            return  # every reader rejects a commit below the boundary
        self._hold(commit.lsn == len(volume.pasts) + 1, f"{key} leaves a gap")
        last = volume.pasts[-1] if volume.pasts else volume.start
        before = volume.pasts[-1].stored.hash if volume.pasts else volume.start_hash
        self._hold(commit.parent_hash == before, f"{key} does not continue what is before it")
        self._hold(not volume.pasts or commit.epoch >= volume.pasts[-1].stored.commit.epoch, f"{key}: the epoch falls")
        collected_ms = last.collected_before_ms if last is not None and volume.pasts else 0
        for ref in commit.segments:
            self._on_segment(key, vid, ref)
            self._hold(ref.sid.created_ms >= collected_ms, f"{key} names {ref.sid}, which may have been collected")
        state = self._after(key, vid, volume, stored)
        whole, intent = volume.whole(len(volume.pasts)), self.intents.get(stored.hash)
        if intent is not None and intent.back is not None:
            whole = whole | intent.back.whole
        elif intent is not None and commit.kind is not CommitKind.DELETE:
            whole = intent.after(whole)
        volume.values.update(entry.value for entry in state.values())
        max_ts_ms = max(commit.at_ts_ms, last.max_ts_ms if last is not None else 0)
        collected_ms = max(collected_ms, commit.collected_before_ms or 0)
        volume.pasts.append(Past(stored, state, whole, commit.bounds.head_seq, max_ts_ms, collected_ms))
        self.commits += 1
        self.counts[commit.kind.name] += intent is not None

    def _on_segment(self, key: Key, vid: Vid, ref: SegmentRef) -> None:
        """Check that both objects of a segment are there and whole before the commit lands (MODEL-3)."""
        sizes = {
            keys.data_key(vid, ref.sid): ref.data_length,
            keys.index_key(vid, ref.sid): ref.index_head_length + ref.index_trailer_length,
        }
        for name, size in sizes.items():
            is_whole = self.ground.has(name) and self.ground.head(name).size == size
            self._hold(is_whole, f"{key} names {name}, which is not there, or not whole")
        self.segments.setdefault(vid, []).append((ref.first_seq, ref.last_seq, sizes))
        self.refs[ref.sid] = vid, ref

    def _after(self, key: Key, vid: Vid, volume: Volume, stored: StoredCommit) -> State:
        """Return the records after a commit. Check its place (MODEL-1) and its writer (MODEL-2)."""
        commit, before = stored.commit, volume.state(len(volume.pasts))
        intent = self.intents.get(stored.hash)
        if intent is None:  # a commit of GC
            self._hold(commit.kind is CommitKind.CONFIG, f"{key} was on nobody's record")
            return before
        writer = volume.writers.setdefault(commit.epoch, intent.writer)
        self._hold(
            writer == intent.writer, f"{key}: {intent.writer} writes in epoch {commit.epoch}, which is {writer}'s"
        )
        after = intent.after(before)
        head_seq = volume.head_seq(len(volume.pasts))
        if intent.op is not None:
            self.journals[intent.writer][intent.topic].told(intent.op)
            head_seq = head_seq if intent.op.cut is None else intent.op.cut - 1
        elif intent.added is not None:
            self._hold(min(intent.added) == head_seq + 1, f"{key} does not begin where its volume ends, at {head_seq}")
            head_seq = max(intent.added)
        elif intent.back is not None:
            head_seq = intent.back.head_seq
        self._hold(commit.bounds.head_seq == head_seq, f"{key} ends at {commit.bounds.head_seq}, and not {head_seq}")
        for ref in commit.segments:
            shown = {seq: each for seq, each in after.items() if ref.first_seq <= seq <= ref.last_seq}
            self._hold(
                self._content(vid, ref) == shown, f"{key}: {ref.sid} does not have the records that it stands for"
            )
        return after

    def prepared(self, writer: str, handle: dict[str, Any], attempt: dict[str, Any] | None) -> None:
        """Derive the effect of a commit from its writer's journal when the writer puts the commit on record."""
        vid, lsn = Vid.parse(handle["vid"]), handle["pending_lsn"]
        stored = decode_commit_at(handle["pending_body"], vid, lsn)
        if stored.hash not in self.intents:
            self.intents[stored.hash] = self._intent(writer, handle["name"], stored.commit)

    def _intent(self, writer: str, topic: str, commit: Commit) -> Intent:
        if commit.kind in {CommitKind.CONFIG, CommitKind.COMPACT}:
            return Intent(writer, topic)
        if commit.restored is not None:
            return Intent(writer, topic, back=self.undo(commit.vid, commit.lsn - 1, commit.restored.undone))
        journal, volume = self.journals[writer][topic], self.volumes[commit.vid]
        self._hold(
            commit.lsn - 1 <= len(volume.pasts),
            f"{writer} follows lsn {commit.lsn - 1} of {topic}, which nobody committed",
        )
        state, head_seq = volume.state(commit.lsn - 1), volume.head_seq(commit.lsn - 1)
        whole = volume.whole(commit.lsn - 1)
        due = [op for op in journal.untold if op.is_due(state if op.cut is None else whole, head_seq)]
        if commit.kind is CommitKind.OFFLOAD:
            [ref] = commit.segments
            if ref.sid not in self.sent:
                self._hold(not due, f"{writer} offloads {topic}, and has not told of {due}")
                added = journal.between(ref.first_seq, ref.last_seq)
                self._hold(added is not None, f"{writer} sent what is not in {topic}: {ref.first_seq}-{ref.last_seq}")
                self.sent[ref.sid] = added or {}
            return Intent(writer, topic, added=self.sent[ref.sid])
        is_cut = commit.kind is CommitKind.TRUNCATE
        # A later truncation lowers a delete. The writer may still commit the delete as it was made, but need not.
        own = [op for op in journal.untold if op.at_seq <= commit.at_seq <= op.made_at]
        as_told = [op for op in own if replace(op, at_seq=commit.at_seq).is_due(state, head_seq)]
        may = due if is_cut else [*(op for op in due if op in own), *as_told, *due]
        named = self._named_by(commit)
        below = commit.deletions.before_seq
        if not is_cut and not any(seq < below or seq in named for seq in state):  # all was deleted already
            may = [each for each in own if each.cut is None and all(map(each.takes, named.values()))]
            may = [each for each in may if not below or each.before == below or each.seqs is not None]
        op = next((op for op in may if (op.cut is not None) == is_cut and op.cut == commit.truncate_from), None)
        self._hold(
            op is not None, f"{writer} tells of what nobody did to {topic}: {commit.kind.name} at lsn {commit.lsn}"
        )
        if op is None or is_cut:
            return Intent(writer, topic, op)
        self._hold(op in own, f"{writer} tells of a delete of {topic} at seq {commit.at_seq}, which is {op}")
        told = replace(op, at_seq=commit.at_seq)
        self._hold(all(map(told.takes, named.values())), f"{writer} tells of a delete of {topic} that names {named}")
        return Intent(writer, topic, told, named)

    def _named_by(self, commit: Commit) -> State:
        """Return the records that a commit names."""
        named: State = {}
        for sid, bits in commit.deletions.bitmaps.items():
            vid, ref = self.refs[sid]
            content = self._content(vid, ref)
            named |= {ref.first_seq + entry: content[ref.first_seq + entry] for entry in BitMap.deserialize(bits)}
        return named

    def author(self, past: Past) -> str | None:
        intent = self.intents.get(past.stored.hash)
        return None if intent is None else intent.writer

    def undo(self, vid: Vid, lsn: int, undone: ForkPoint) -> Back:
        """Return the effect of an undo right after the commit `lsn` of `vid`. The commit `undone` is in its history.

        A record that the commit took comes back, unless a later commit took its seq, or a fork cut it away. A later
        commit that was undone does not count. A later delete also took the records that it names. What an earlier undo
        of the same commit brought back stays as it is now.
        """
        above, history = self.volumes[undone.vid], list(self.history(vid, lsn))
        places = [point for point, _, _ in history]
        self._hold(undone in places, f"{undone} is undone in {vid}, which does not have it")
        _, past, seq = history[places.index(undone)]
        own = self.intents[past.stored.hash].op
        later = [(point, self.intents.get(each.stored.hash)) for point, each, _ in history[places.index(undone) + 1 :]]
        undos = [intent.back for _, intent in later if intent is not None and intent.back is not None]
        before, after = above.state(undone.lsn - 1), above.state(undone.lsn)
        is_cut = own is not None and own.cut is not None
        taken = {each: entry for each, entry in before.items() if each not in after and (is_cut or each <= seq)}
        for point, intent in later:
            is_in_force = all(back.undone != point for back in undos)
            if intent is not None and intent.op is not None and is_in_force:
                op, named = intent.op, intent.named
                taken = {a: entry for a, entry in taken.items() if not op.takes_seq(a) and named.get(a) != entry}
        is_earlier = False
        for back in (each for each in undos if each.undone == undone):
            taken = {each: entry for each, entry in taken.items() if each not in back.records}
            is_earlier = True
        whole_after = above.whole(undone.lsn)
        whole = {each: entry for each, entry in above.whole(undone.lsn - 1).items() if each not in whole_after}
        is_head_back = is_cut and not is_earlier
        head_seq = above.head_seq(undone.lsn - 1) if is_head_back else self.volumes[vid].head_seq(lsn)
        return Back(undone, taken, whole if is_head_back else {}, head_seq)

    # ------------------------------------------------------------ what must be

    def state(self, point: ForkPoint) -> State:
        return _up_to(point.seq, self.volumes[point.vid].state(point.lsn))

    def at_time(self, vid: Vid, ms: int) -> State:
        """Return the records of `vid` after every change up to `ms`, applied in commit order."""
        shown: State = {}
        history = list(self.history(vid))
        truncations = {point for point, past, _ in history if past.stored.commit.truncate_from is not None}
        for point, past, cut in history:
            intent = self.intents.get(past.stored.hash)
            if any(each.vid == point.vid and each.lsn > point.lsn for each in truncations):
                cut = _NO_CUT  # the seqs of the cut are those of later records
            if intent is not None and intent.back is not None and past.stored.commit.at_ts_ms <= ms:
                shown |= _up_to(cut, intent.back.records)
            elif intent is not None and intent.added is not None:
                shown |= {seq: each for seq, each in intent.added.items() if seq <= cut and each.ts_ms <= ms}
            elif intent is not None and past.stored.commit.at_ts_ms <= ms:
                shown = _up_to(cut, intent.after(shown))  # a truncation ends what its fork does not keep
        return shown

    def history(self, vid: Vid, lsn: int | None = None) -> Iterator[tuple[ForkPoint, Past, int]]:
        """Yield each commit of `vid` up to `lsn`, and of its ancestors, oldest first, with its place, and the last seq
        that a fork keeps of it.
        """
        legs: list[tuple[Vid, int, int]] = []
        lsn, cut = len(self.volumes[vid].pasts) if lsn is None else lsn, _NO_CUT
        while True:
            volume = self.volumes[vid]
            legs.append((vid, lsn, cut))
            if volume.parent is None:
                break
            parent = volume.parent
            cut = min(cut, _NO_CUT if parent.seq is None else parent.seq)
            vid, lsn = parent.vid, parent.lsn
        for vid, lsn, cut in reversed(legs):
            pasts = self.volumes[vid].pasts[:lsn]
            yield from ((ForkPoint(vid, number), past, cut) for number, past in enumerate(pasts, 1))

    def is_promised(self, point: ForkPoint) -> bool:
        """Return True if a name holds the volume and the point is within the volume's window."""
        since_ms = self._now_ms() - self.window_ms
        return point.vid in self._named(since_ms) and point.lsn in self.volumes[point.vid].promised(since_ms)

    def is_replaced(self, point: ForkPoint) -> bool:
        """Return True if another commit landed in the place of one that the point stands on."""
        lsns = self.volumes[point.vid].replaced
        parent = self.volumes[point.vid].parent
        return any(lsn <= point.lsn for lsn in lsns) or (parent is not None and self.is_replaced(parent))

    def named(self, topic: str, branch: str, vid: Vid) -> None:
        """Record that a directory learned that `vid` is the volume of this name."""
        known, moved = self.names.setdefault((topic, branch), {Held(vid)}), self.moved.get((topic, branch))
        if moved is not None:
            self._hold(vid in moved, f"{topic}@{branch} is volume {vid}, and was one of {moved}")
        elif len(known) == 1:
            held = {each.vid for each in known}
            # A directory that had the branch open writes its volume until GC closes it.
            is_open_still = held == {None} and vid == self.given_up.get((topic, branch))
            self._hold(held == {vid} or is_open_still, f"{topic}@{branch} is volume {vid}, and was {known}")
        elif branch.startswith("d"):  # the directory's own branch, which no other task deletes
            self.names[topic, branch] = {Held(vid)}

    def ack(self, writer: str, vid: Vid, lsn: int) -> None:
        """Record that the writer learned that its commit has that LSN. Check that the commit is found (MODEL-7)."""
        pasts = self.volumes[vid].pasts
        is_theirs = lsn <= len(pasts) and self.author(pasts[lsn - 1]) == writer
        self._hold(is_theirs, f"lsn {lsn} of {vid} was acked to {writer}, and is not its commit")
        self.acked.add((vid, lsn, pasts[lsn - 1].stored.hash))

    def check(self, sample: Callable[[range], range | list[int]] = lambda lsns: lsns) -> None:
        """Check that every state promised now reads back (MODEL-5).

        `sample` chooses the LSNs of each volume's window.
        """
        now_ms = self._now_ms()
        volumes = Volumes(self.ground)
        for vid in sorted(self._named(now_ms - self.window_ms)):
            for lsn in sample(self.volumes[vid].promised(now_ms - self.window_ms)):
                self._check_point(volumes, ForkPoint(vid, lsn), f"{vid} is named, and lsn {lsn} within its window")
        for (topic, name), points in self.tags.items():
            if len(points) == 1 and None not in points:
                [point] = points
                assert point is not None
                self._check_point(volumes, point, f"tag {name} of {topic}")
        for key, (point, until_ms) in self.pins.items():
            if until_ms > now_ms + MOST_OFF_MS:
                self._check_point(volumes, point, key)

    def _named(self, since_ms: int) -> set[Vid]:
        held: set[Vid] = set()
        for values in self.names.values():
            if len(values) == 1:
                [value] = values
                if value.vid is not None and (value.deleted_at_ms is None or value.deleted_at_ms > since_ms):
                    held.add(value.vid)
        return held

    def _check_point(self, volumes: Volumes, point: ForkPoint, why: str) -> None:
        self.checked += 1
        try:
            found = self._shown(volumes.snapshot(point.vid, point.lsn, point.seq))
        except CatalogError as error:
            raise Broken(f"{why}, and it is lost: {type(error).__name__}: {error}") from error
        self._hold(found == self.state(point), f"{why}, and reads as something else")

    def _shown(self, snapshot: Snapshot) -> State:
        """Return the records that `snapshot` shows.

        The content of each segment is read once and cached. Its objects must be there at each call.
        """
        found: State = {}
        for view in snapshot.segments:
            deleted = BitMap.deserialize(view.deleted) if view.deleted else BitMap()
            for seq, entry in self._content(view.vid, view.ref).items():
                if view.first <= seq <= view.last and seq - view.ref.first_seq not in deleted:
                    found[seq] = entry
        return found

    def _content(self, vid: Vid, ref: SegmentRef) -> State:
        for key in (keys.data_key(vid, ref.sid), keys.index_key(vid, ref.sid)):
            self.ground.head(key)
        known = self._contents.get(ref.sid)
        if known is None:
            view = SegmentView(ref, vid, lsn=0, first=ref.first_seq, last=ref.last_seq)
            records = self._reader.segment_records(view, ref.first_seq, ref.last_seq)
            known = self._contents[ref.sid] = {each.seq: Entry(*each[:4]) for each in records}
        return known

    def _hold(self, is_so: bool, what: str) -> None:
        if not is_so:
            raise Broken(what)


def _up_to(seq: int | None, state: State) -> State:
    return state if seq is None else {each: entry for each, entry in state.items() if each <= seq}
