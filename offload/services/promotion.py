"""Promotion: a branch becomes main, and no record of the former main is lost. An undo of it does the same backwards.

    step                                                              state after a crash in this step
    1 The directory offloads what it has of main and of the branch.   the same topics, further in the remote
    2 It compares the two. If main has records that the branch        the same, and the branch has some of the records;
      lacks, the caller leaves them, or the directory carries them    a second call carries the rest
      (`RecordCarrier`). Otherwise it stops here.
    3 It drops its own topics of both names, as a reset does.         a replica of both
    4 It fences both volumes: main's by a commit right after the      their writers are fenced; a takeover ends that
      state of step 2. If there is another commit, it begins again.
    5 It changes the names (catalog.refs.promotion), if they lead     a second call makes the missing steps
      to the volumes of step 2. Otherwise it fails.
    6 It looks for commits after the fence of the former main.        a second call fences its writer, whoever that is
    7 Its replica of main moves to the new volume. A directory that   a second call or the next sync moves the replica,
      wrote main takes the new one over, with its producers and keys. and `seglog takeover` makes it the writer

SWITCH-1  No writer of the former main continues unknowing.
    The fence has a higher epoch, so the next commit of the writer is refused. Its records stay in its directory, and
    `reset` brings them to a branch.
SWITCH-2  A directory that takes main over puts its commit first, and then reads main's ref. A promotion changes the ref
    first, and then looks for such a commit, which it fences. So at least one of the two sees the other.
SWITCH-3  A replica reads its ref with each sync (`Handles.relocate`). So it follows the name, not the volume.
SWITCH-4  If a record is appended here meanwhile, step 3 fails and the steps begin again. So step 2 has seen each record
    that this directory acked before the promotion.

**`branch promote --carry`**: the records that main got after the fork are appended to the branch that becomes main.

    1 The directory takes the branch over, and notes in its configuration where the records come from, and the branch's
      last seq before them.
    2 It appends the live records of main above the shared seq, in order, with their tags and nodes. They get new seqs
      and the time of now, because the log assigns both. Deletes stay in the former main.
    3 It offloads the branch.

CARRY-1  A second call after a crash continues after the last record that the branch has. It compares each record that
    is there. So no record is carried twice.
CARRY-2  A call that ended notes the last record that it carried, with its time here and in main. A later call carries
    only what main got since.
CARRY-3  A note counts as long as the branch has the records that it speaks of. A record that took the seq of a
    truncated one is newer than the note says. If none of the carried records is left, the call begins anew. If some
    are, it compares them as after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import astuple, replace
from itertools import groupby, islice, takewhile

from catalog import MAIN, CommitKind, Snapshot, Vid
from catalog.errors import BranchExists, KeyChanged, KeyTaken, NoSuchBranch, NoSuchTopic, main_cannot
from catalog.format import keys
from offload.errors import Conflict, RecordsAfterFork
from offload.format.topic_config import CARRIED_FROM
from offload.handles import split_name
from offload.services.archive_parts import ArchiveParts, OfArchive
from offload.services.diff import Difference, State, diff_of
from offload.services.direct_commits import DirectCommits
from seglog import ConcurrentModification, Gap, Record, Topic
from seglog.base.arguments import WHOLE_MAX
from seglog.base.dataclasses import dataclass
from seglog.base.progress import count

NAME_CHANGES = "its name changes: main is another branch from here on"
"""The message of the commit that a promotion puts into both volumes. Cursors look for it, so it stays as it is."""
_BATCH_RECORDS = 1024
_ROUNDS = 20


class RecordCarrier(OfArchive):
    """Carries records to a branch. The caller holds the lock of the branch."""

    def run(self, main: Snapshot, shared_seq: int, branch: str, vid: Vid) -> range:
        """Carry the live records of `main` above the shared seq to `branch`. Return the seqs there of those that this
        call carried, or an earlier one that did not end.

        Raises `Conflict` if other records follow those of an earlier call (CARRY-1). Raises `KeyChanged` if
        the branch leads to another volume than `vid` by now, and what the store raises.
        """
        topic = self._parts.takeover.topic(branch)
        if self._handles.of(branch).vid != vid:
            raise KeyChanged(keys.ref_key(*split_name(branch)))
        note = self._begin(topic, main, shared_seq)
        records = (record for record in self._above(main, shared_seq) if not note.covers(record))
        _last_alike(topic.read(note.begun + 1, gaps=True), records, _carried_otherwise(branch, note.begun))
        for labels, values in _batches(records):
            self._save(topic, note)
            tag, node, unterminated = labels
            topic.append(values, tag=tag, node=node, unterminated=unterminated)
            count("carrying", len(values), "records")
        carried = range(note.begun + 1, topic.head_seq + 1)
        if carried:
            upto, upto_ms = main.bounds.head_seq, main.max_ts_ms
            self._save(topic, replace(note, end=carried[-1], end_ms=topic.last_ts_ms, upto=upto, upto_ms=upto_ms))
        topic.seal()
        self._parts.offloader.run(branch)
        return carried

    def _above(self, main: Snapshot, shared_seq: int) -> Iterator[Record]:
        """Return the live records of main that the branch does not have by its fork."""
        return self._reader.records(main, max(shared_seq + 1, main.bounds.evict_floor), main.bounds.head_seq)

    def _begin(self, topic: Topic, main: Snapshot, shared_seq: int) -> _Note:
        """Return the note on record as far as it counts (CARRY-3), or a new one. Puts nothing on record."""
        head, note, origin = topic.head_seq, _noted(topic), f"{main.vid} {shared_seq}"
        new = _Note(origin, head, head, topic.last_ts_ms, shared_seq, 0, head)
        if note is None or note.origin != origin:
            return new
        if _has(topic, note.end, note.end_ms):
            return note if note.end <= note.begun <= head else replace(note, begun=head)
        if note.end == note.base or not _has(topic, note.base + 1, note.end_ms):
            return new
        carried = takewhile(lambda record: _is_at_most(record, note.end_ms), topic.read(note.base + 1, gaps=True))
        last = _last_alike(carried, self._above(main, shared_seq), _carried_otherwise(topic.name, note.base))
        if last is None:
            return new
        copy, original = last
        return replace(note, end=copy.seq, upto=original.seq, upto_ms=original.ts_ms, begun=head)

    def _save(self, topic: Topic, note: _Note) -> None:
        if note != _noted(topic):
            self._log.reconfigure(
                topic.name, lambda config: replace(config, attributes={**config.attributes, CARRIED_FROM: note.text})
            )


@dataclass(frozen=True, slots=True)
class _Note:
    """What the attribute `CARRIED_FROM` says. `origin` is main's volume and the shared seq.

    The branch had its head at `base` before the first call, and at `begun` before the newest one. Of the calls that
    ended, `end` is the last carried record, and `upto` the last seq of main. Neither is newer than its time in ms. If
    `begun` is not below `end`, the newest call has not ended.
    """

    origin: str
    base: int
    end: int
    end_ms: int
    upto: int
    upto_ms: int
    begun: int

    @property
    def text(self) -> str:
        return " ".join(map(str, astuple(self)))

    def covers(self, record: Record) -> bool:
        """Return whether a call that ended carried this record of main."""
        return record.seq <= self.upto and record.ts_ms <= self.upto_ms


def _noted(topic: Topic) -> _Note | None:
    vid, *numbers = topic.config.attributes.get(CARRIED_FROM, "").split() or [""]
    match [int(number) for number in numbers]:
        case [shared_seq, base]:  # of a version that noted no more, also after the end
            return _Note(f"{vid} {shared_seq}", base, base, WHOLE_MAX, shared_seq, 0, base)
        case [shared_seq, base, end, end_ms, upto, upto_ms, begun]:
            return _Note(f"{vid} {shared_seq}", base, end, end_ms, upto, upto_ms, begun)
    return None


def _has(topic: Topic, seq: int, newest_ms: int) -> bool:
    """Return whether the topic still has the record that had this seq at that time. A deleted or lost one counts."""
    if not 0 < seq <= topic.head_seq:
        return seq == 0
    return all(_is_at_most(record, newest_ms) for record in topic.read(seq, seq, gaps=True))


def _is_at_most(item: Record | Gap, newest_ms: int) -> bool:
    return isinstance(item, Gap) or item.ts_ms <= newest_ms


def _last_alike(
    carried: Iterable[Record | Gap], records: Iterator[Record], otherwise: Conflict
) -> tuple[Record, Record] | None:
    """Take from `records` one for each that is there. Return the last of both. Raises the error if two differ."""
    last = None
    for copy in carried:
        record = next(records, None)
        if isinstance(copy, Gap) or record is None or _content(copy) != _content(record):
            raise otherwise
        last = copy, record
    return last


def _batches(records: Iterable[Record]) -> Iterator[tuple[tuple[str | None, str | None, bool], list[bytes]]]:
    for labels, group in groupby(records, key=lambda record: (record.tag, record.node, record.unterminated)):
        while values := [record.value for record in islice(group, _BATCH_RECORDS)]:
            yield labels, values


def _content(record: Record) -> tuple[bytes, str | None, str | None, bool]:
    return record.value, record.tag, record.node, record.unterminated


@dataclass(frozen=True, slots=True)
class Promoted:
    """The result of a promotion. `keep` is the name of the former main, and `vid` the volume of the new one.

    `after_fork` compares the former main (left) with the branch. It is None if this call only ended an earlier one.
    `carried` are the seqs of carried records in the new main.
    """

    keep: str
    vid: Vid
    after_fork: Difference | None
    carried: range = range(0)


class Promotion(OfArchive):
    """Promotes branches. `run` and `undo` hold the locks of both names."""

    def __init__(self, parts: ArchiveParts) -> None:
        super().__init__(parts)
        self._direct = DirectCommits(parts)
        self._carrier = RecordCarrier(parts)

    def run(self, topic: str, branch: str, keep: str, *, carry: bool, leave: bool, message: str) -> Promoted:
        """Make the branch main. Raises `RecordsAfterFork` unless the caller carries or leaves such records, and what
        `Branches.promote` and `Archive.offload` raise. After `KeyChanged`, no name has changed.
        """
        side = f"{topic}@{branch}"
        split_name(side)
        with self._locked(topic, side):
            main = self._branches.resolve(topic)
            try:
                new = self._branches.resolve(topic, branch)
            except NoSuchBranch:  # perhaps an earlier promotion ended before its last step
                self._follow_main(topic)
                raise

            def change() -> None:
                nonlocal keep  # the second call for a promotion finds the name that the first one gave
                now_ms = self._context.clock.now_ms()
                keep = self._branches.promote(topic, branch, keep, (main, new), now_ms=now_ms, message=message).branch

            if main == new:  # an earlier promotion ended before its last step
                change()
                self._fence_newer(topic, self._branches.resolve(topic, keep), 0)
                self._follow(topic, side)
                return Promoted(keep, new, None)
            self._check_keep(topic, branch, keep, main)
            after, carried = self._switch(topic, side, (main, new), change, carry=carry, leave=leave)
            return Promoted(keep, new, after, carried)

    def undo(self, topic: str, keep: str, vids: tuple[Vid, Vid], change: Callable[[], None]) -> None:
        """Take a promotion back by `change`. `vids` are main's volumes, now and afterwards. `keep` names the second."""
        side = f"{topic}@{keep}"
        with self._locked(topic, side):
            if self._branches.resolve(topic) != vids[0]:
                self._follow_main(topic)  # perhaps an earlier undo ended before its last step
                change()  # main has changed since, or never did
            else:
                self._switch(topic, side, vids, change, carry=False, leave=True)

    def _switch(
        self, topic: str, side: str, vids: tuple[Vid, Vid], change: Callable[[], None], *, carry: bool, leave: bool
    ) -> tuple[Difference, range]:
        """Carry out all steps. `vids` are main's volumes, before and afterwards. Return what was carried, too."""
        carried, is_here = range(0), self._log.has_topic(topic)
        for _ in range(_ROUNDS):
            self._direct.offload(topic)
            self._direct.offload(side)
            main, new = (self._volumes.snapshot(vid) for vid in vids)
            pasts = [self._volumes.history(state.vid, state.lsn) for state in (main, new)]
            after = diff_of(State(main, pasts[0]), State(new, pasts[1]), self._context.reader)
            if after.left.appended and carry:
                more = self._carrier.run(main, after.shared_seq, side, new.vid)
                carried = range(carried.start, more.stop) if carried and more else more or carried
                new = self._volumes.snapshot(new.vid)
            elif after.left.appended and not leave:
                raise RecordsAfterFork(topic, side, after.left.appended, after.shared_seq)
            if not (self._direct.drop(side) and self._direct.drop(topic)):
                continue
            if self._fence(topic, main) and self._fence(side, new):
                break
        else:
            raise ConcurrentModification(topic)
        change()
        self._fence_newer(topic, main.vid, main.lsn + 1)
        self._follow(topic, side)
        if is_here:
            self._direct.take_back(topic)
        return after, carried

    def _check_keep(self, topic: str, branch: str, keep: str, main: Vid) -> None:
        """Refuse a name for the former main before the first step. An earlier try may have given it already."""
        if MAIN in {branch, keep}:
            raise main_cannot(topic, "be promoted" if branch == MAIN else "be the name of the former main")
        with suppress(NoSuchBranch, NoSuchTopic):  # a LIST may miss the other names
            if keep == branch or self._branches.resolve(topic, keep) != main:
                raise BranchExists(topic, keep)

    def _locked(self, *names: str) -> ExitStack:
        self._log.check_writable()
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(self._context.locks.of(name))
            return stack.pop_all()

    def _fence(self, name: str, state: Snapshot) -> bool:
        """Put a commit of a higher epoch right after a state. Return False if another commit is there."""
        lsn = self._direct.put_after(name, state, CommitKind.CONFIG, NAME_CHANGES, at_ts_ms=state.max_ts_ms)
        return lsn is not None

    def _fence_newer(self, topic: str, vid: Vid, fence_lsn: int) -> None:
        """Fence a directory that took the former main over after its fence, and did not see the new ref (SWITCH-2)."""
        for _ in range(_ROUNDS):
            newest = self._volumes.snapshot(vid)
            if newest.lsn <= fence_lsn or self._fence(topic, newest):
                return
        raise KeyTaken(keys.commit_key(vid, fence_lsn + 1))

    def _follow(self, topic: str, side: str) -> None:
        """Let this directory's replica of main follow the new volume. The name of the branch leads nowhere now."""
        self._follow_main(topic)
        self._parts.replicas.forget(side)

    def _follow_main(self, topic: str) -> None:
        handle = self._handles.find(topic)
        if handle is not None and not self._log.has_topic(topic):
            self._handles.relocate(handle)


def _carried_otherwise(branch: str, seq: int) -> Conflict:
    """Return the error of a branch where other records follow `seq` than an earlier promotion carried there."""
    text = f"above seq {seq}, {branch} has other records than an earlier `branch promote --carry` brought there"
    hint = f"--leave makes it main as it is; `seglog truncate {branch} --from {seq + 1}` lets --carry begin anew"
    return Conflict(text, hint=hint)
