"""`archive.history`: the past states of topics and branches, and the log of operations on their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from catalog import CommitKind, ForkPoint, History, PastCommit, SegmentView, Snapshot, Vid
from catalog.errors import OutOfWindow
from catalog.history import retry_if_collected
from catalog.refs.name_undo import check_undo, find_operation, undo_found
from catalog.refs.oplog import NumberedEntry, Oplog
from catalog.refs.promotion import moved_main
from catalog.refs.state_names import HeldPin, Pins
from offload.errors import NotOffloaded
from offload.services.archive_parts import OfArchive
from offload.services.diff import Difference, State, diff_of, differing_records
from offload.services.erasure_dates import window_ms_here
from offload.services.states import range_to_read
from seglog import Record, Undeleted
from seglog.base.arguments import checked
from seglog.base.ownership import Owned

if TYPE_CHECKING:
    from offload.format.metadata import SegmentIndex
    from offload.services.undoing import Undone

_ROUNDS = 5


class HistoryService(OfArchive, Owned):
    """The calls about the past of topics and branches. Only those that begin with `undo` change anything."""

    @checked
    def snapshot(self, name: str, at: str | None = None) -> Snapshot:
        """Return the state of a topic or branch in the remote: the newest, or the one at a target.

            >>> archive.history.snapshot("orders", at="seq:2").bounds.head_seq
            2

        Raises:
            SeglogError: As `point` does.
        """
        if at is None:
            return self._states.newest(name)
        return self.snapshot_at(self.point(name, at))

    @checked
    def commits(self, name: str) -> History:
        """Return the commits of the topic or branch, through its fork points, as far as GC keeps them.

        >>> removed = archive.delete("orders", tag="eu")
        >>> [(past.commit.lsn, past.commit.kind.name) for past in archive.history.commits("orders")]
        [(2, 'DELETE'), (1, 'OFFLOAD')]
        """
        return self._states.history(name)

    @checked
    def point(self, name: str, target: str) -> ForkPoint:
        """Return the exact point of the history that a target names.

            >>> archive.history.point("orders", "seq:2").seq
            2

        The call seals and offloads nothing.

        Args:
            name: The topic, or TOPIC@BRANCH.
            target: `seq:N`, `lsn:N`, `head`, `head~N`, `tag:NAME` or a time such as `20 minutes ago`.

        Raises:
            NotOffloaded: The remote has no such point yet.
            InvalidTarget: The text names no point.
            OutOfWindow: GC keeps that point no longer.
            NoSuchTag: There is no such tag.
        """
        pending, point = self._states.look_up(name, self._states.parse(target))
        if pending is not None and pending.has(point):
            raise NotOffloaded(name, target)
        return point

    @checked
    def bounds(self, name: str, at: str) -> tuple[int, int, str]:
        """Return the first and the last seq of a state, and a target that means the same state after later commits.

            >>> archive.history.bounds("orders", "seq:2")[:2]
            (1, 2)

        The target is the given one, with a time in the place of an age, if no commit ends with that state.

        Args:
            name: The topic, or TOPIC@BRANCH.
            at: The state, as in `Archive.read`.

        Raises:
            SeglogError: As `Archive.read` does.
        """
        return self._states.bounds(name, at)

    @checked
    def live_floor(self, name: str, snapshot: Snapshot) -> int:
        """Return the live floor of the newest state. Every record below it was evicted, or is past the ttl now.

        May read one index object and one chunk.
        """
        return self._states.live_floor(name, snapshot)

    @checked
    def read_snapshot(
        self, name: str, snapshot: Snapshot, floor: int, start: int | None = None, end: int | None = None
    ) -> Iterator[Record]:
        """Return records of a state that the caller has, as `Archive.read` does. The records below `floor` are lost.

        Raises `SeqOutOfRange`, `Evicted`.
        """
        start, last = range_to_read(name, snapshot.bounds, floor, start)
        return self._context.reader.records(snapshot, start, last if end is None else end)

    @checked
    def diff(self, left: str, right: str, *, left_at: str | None = None, right_at: str | None = None) -> Difference:
        """Return the differences between two states, as far as the remote has them: the newest, or at a target each.

            >>> found = archive.history.diff("orders", "orders", left_at="seq:1")
            >>> [(is_left, record.value) for is_left, record in archive.history.differing_records(found)]
            [(False, b'lamp'), (False, b'desk')]

        It reads commits, and heads of index objects.

        Raises:
            SeglogError: As `point` does.
        """
        return retry_if_collected(
            lambda: self._states_of((left, left_at), (right, right_at)),
            lambda states: diff_of(*states, self._context.reader),
        )

    @checked
    def differing_records(self, found: Difference) -> Iterator[tuple[bool, Record]]:
        """Return the records that only one state of a diff shows, by seq. True stands for the left state."""
        return differing_records(found, self._context.reader)

    @checked
    def index(self, view: SegmentView) -> SegmentIndex:
        """Return the index of a segment of a snapshot: its chunks with their times, and the records of each tag.

        Raises `InvalidIndex`, and what the store raises.
        """
        return self._context.reader.index(view)

    @checked
    def count(self, snapshot: Snapshot) -> tuple[int, Record | None]:
        """Return the number of live records in `snapshot`, and the last of them, which the call reads; 0 and None for
        no record.

        The commits give the number. That takes a few requests, however many segments there are (`count_live` names the
        exception).
        """
        return self._states.count(snapshot)

    @checked
    def snapshot_at(self, point: ForkPoint) -> Snapshot:
        """Return the state at a point that `point` gave."""
        return self._volumes.snapshot(point.vid, point.lsn, point.seq)

    @checked
    def commit(self, name: str, target: str) -> PastCommit:
        """Return the newest commit that takes part in the point of `target`. Raises as `point` does."""
        return self.commit_at(self.point(name, target))

    @checked
    def commit_at(self, point: ForkPoint) -> PastCommit:
        """Return the newest commit that takes part in a point that `point` gave. Raises `OutOfWindow`."""
        past = self._volumes.history(point.vid, point.lsn).at(point.vid, point.lsn)
        if past is None:
            raise OutOfWindow(f"lsn:{point.lsn}", "what GC has kept of its volume")
        return past

    def _states_of(self, left: tuple[str, str | None], right: tuple[str, str | None]) -> tuple[State, State]:
        """Return two states of one moment. If an offload here moves one of them meanwhile, take both again."""
        for _ in range(_ROUNDS):
            before = [self._states.places(name) for name, _ in (left, right)]
            states = self._state(*left), self._state(*right)
            if before == [self._states.places(name) for name, _ in (left, right)]:
                break
        return states

    def _state(self, name: str, at: str | None) -> State:
        """Return a state with its commits. The target is looked up once, because it may move meanwhile."""
        if at is None:
            past = self._states.history(name)
            return State(self._states.newest(name), past)
        point = self.point(name, at)
        return State(self.snapshot_at(point), self._volumes.history(point.vid, point.lsn))

    @checked
    def pin(self, point: ForkPoint, ttl_s: int) -> HeldPin:
        """Let GC keep the state at a point for some time, for example while a long job reads it.

            >>> point = archive.history.point("orders", "head")
            >>> held = archive.history.pin(point, ttl_s=600)

        Args:
            point: What `point` returned.
            ttl_s: So many seconds. `archive.pins.refresh` gives more.

        Raises:
            OutOfWindow: GC does not keep the state now.
        """
        now_ms = self._clock.now_ms()
        return Pins(self._volumes).hold(point, self._context.writer_id, ttl_ms=ttl_s * 1000, now_ms=now_ms)

    @checked
    def window_ms(self, name: str) -> int:
        """Return for how long GC keeps a past state of the topic or branch, in ms."""
        return window_ms_here(self._context, name, lambda: self._states.newest(name).config)

    def operations(self) -> Iterator[NumberedEntry]:
        """Return the operations log, newest first: each entry says which writer changed which name.

        >>> restored = archive.restore("orders", to="seq:2", name="half")
        >>> [entry.number for entry in archive.history.operations()]
        [2, 1]
        """
        return Oplog(self._store).entries()

    def last_operation(self) -> NumberedEntry:
        """Return the operation that `undo` without a number takes back. Raises `NotUndone` if there is none."""
        return find_operation(self._volumes)

    @checked
    def newest_removal(self, name: str) -> PastCommit | None:
        """Return the newest commit of a topic or branch if it took records away. Maintenance does not count.

        Raises as `commits` does.
        """
        from catalog.undo_plan import TAKES_AWAY

        def newest(history: History) -> PastCommit | None:
            changes = (past for past in history if past.commit.kind not in {CommitKind.CONFIG, CommitKind.COMPACT})
            return next(changes, None)

        past = retry_if_collected(lambda: self._states.history(name), newest)
        return past if past is not None and past.commit.kind in TAKES_AWAY else None

    @checked
    def preview_undo(self, name: str, lsn: int, vid: Vid | None = None) -> Undone:
        """Return the records that `undo_removal` would bring back, and change nothing.

            >>> removed = archive.delete("orders", tag="eu")
            >>> archive.history.preview_undo("orders", removed.lsn).records
            2

        Raises:
            SeglogError: As `undo_removal` does.
        """
        from offload.services.undoing import Undoing

        return Undoing(self._parts).preview(name, lsn, vid)

    @checked
    def undo_removal(
        self, name: str, lsn: int, vid: Vid | None = None, *, partial: bool = False, message: str = ""
    ) -> Undone:
        """Undo the delete, eviction or truncation with that LSN, by a new commit (offload.services.undoing).

            >>> removed = archive.delete("orders", tag="eu")
            >>> archive.history.undo_removal("orders", removed.lsn).records
            2
            >>> len(list(archive.read("orders")))
            3

        The records have their seqs and times again. All else stays as it is. The call first offloads what this
        directory has of the topic. The writer stays the writer, and its log shows the records again. It drops its hot
        copies only for a truncation, or if the bytes of a record are gone here. An undo in another directory fences it.
        After an error, repeat the call, with the `vid` that `undone` of the preview named.

        Args:
            name: The topic, or TOPIC@BRANCH.
            lsn: The commit. On a branch, it may be an inherited one, and later one of the branch's own.
            vid: The volume of the commit.
            partial: Bring back what is still there if some of the records are gone.
            message: What the new commit says.

        Raises:
            NotUndone: The commit took nothing that an undo can bring back.
            RecordsGone: Some of the records are gone, and `partial` was not given.
            OutOfWindow: GC does not keep the state before the commit.
            NoSuchTopic, NoSuchBranch: There is none here and in the remote.
            UpgradeNeeded: The volume has a form that knows no undo.
            SeglogError: As `Archive.offload` does.
        """
        from offload.services.undoing import Undoing

        return Undoing(self._parts).run(name, lsn, vid, partial=partial, message=message)

    @checked
    def preview_undo_delete(self, name: str, number: int | None = None) -> Undeleted:
        """Return the records that `undo_delete` would bring back. Raises `DeleteNotUndone`."""
        from offload.services.waiting_deletes import WaitingDeletes

        return WaitingDeletes(self._parts).preview(name, number)

    @checked
    def undo_delete(self, name: str, number: int | None = None, *, partial: bool = False, message: str = "") -> Undone:
        """Undo a delete or an eviction of this directory that no commit has yet; without a number, the newest one.

            removed = archive.delete("orders", tag="eu")
            if removed.lsn is None:  # for example because the bucket was down
                archive.history.undo_delete("orders", removed.number)

        The call offloads the topic, so that each delete that waits is a commit, and undoes that commit
        (`undo_removal`). So the remote has both. After an error, repeat the call, or undo the commit, once the delete
        has it.

        Args:
            name: The topic.
            number: The `number` of the delete.
            partial: As in `undo_removal`.
            message: What the new commit says.

        Raises:
            DeleteNotUndone: No such delete waits for its commit, or it took nothing.
            SeglogError: As `undo_removal` does.
        """
        from offload.services.waiting_deletes import WaitingDeletes

        return WaitingDeletes(self._parts).run(name, number, partial=partial, message=message)

    @checked
    def undo(self, number: int | None = None, *, preview: bool = False) -> NumberedEntry:
        """Undo the change of a name with that number; without a number, the newest.

            >>> restored = archive.restore("orders", to="seq:2", name="half")
            >>> entry = archive.history.undo()
            >>> [branch.branch for branch in archive.branches.list("orders")]
            ['main']

        If it made a branch main, the writers of that branch are fenced (offload.services.promotion). Records that it
        got since stay on it, under its former name.

        Args:
            number: The number of the operation, as `operations` has it.
            preview: Only return the operation, and change nothing.

        Raises:
            Missing: There is none of that number.
            NotUndone: Other changes came after it, or records would have no name any more.
            Conflict: A branch that is open here would get another name (offload.services.previews).
        """
        from offload.services.previews import SoleNames

        if not preview:
            self._log.check_writable()
        operation = find_operation(self._volumes, number)
        SoleNames(self._parts).check(operation)
        if preview:
            check_undo(self._volumes, operation)
            return operation
        moved = moved_main(operation.entry)

        def take_back() -> None:
            undo_found(self._volumes, operation, writer_id=self._context.writer_id, now_ms=self._clock.now_ms())

        if moved is None:
            take_back()
        else:
            from offload.services.promotion import Promotion

            Promotion(self._parts).undo(moved.topic, moved.keep, (moved.vid, moved.former), take_back)
        return operation
