"""Promotion: a branch becomes main, and no record of the former main is lost. An undo of it does the same backwards.

    step                                                              state after a crash in this step
    1 The directory offloads what it has of main and of the branch.   the same topics, further in the remote
    2 It compares the two. If main has records that the branch        the same, and the branch has some of the records;
      lacks, the caller leaves them, or the directory carries them    a second call carries the rest
      (offload.services.carrying). Otherwise it stops here.
    3 It drops its own topics of both names, as a reset does.         a replica of both
    4 It fences both volumes: main's by a commit right after the      their writers are fenced; a takeover ends that
      state of step 2. If there is another commit, it begins again.
    5 It changes the names (catalog.refs.promotion), if they lead     a second call makes the missing steps
      to the volumes of step 2. Otherwise it fails.
    6 It looks for commits after the fence of the former main.        a second call fences its writer, whoever that is
    7 Its replica of main moves to the new volume.                    a second call or the next sync makes step 7

SWITCH-1  No writer of the former main continues unknowing.
    The fence has a higher epoch, so the next commit of the writer is refused. Its records stay in its directory, and
    `reset` brings them to a branch.
SWITCH-2  A directory that takes main over puts its commit first, and then reads main's ref. A promotion changes the ref
    first, and then looks for such a commit, which it fences. So at least one of the two sees the other.
SWITCH-3  A replica reads its ref with each sync (`Handles.relocate`). So it follows the name, not the volume.
SWITCH-4  If a record is appended here meanwhile, step 3 fails and the steps begin again. So step 2 has seen each record
    that this directory acked before the promotion.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from catalog import MAIN, CommitKind, Snapshot, Vid
from catalog.errors import BranchExists, KeyTaken, NoSuchBranch, NoSuchTopic, UnnamableBranch
from catalog.format import keys
from offload.context import ArchiveContext
from offload.errors import RecordsAfterFork
from offload.handles import split_name
from offload.replication.replica import Replicas
from offload.services.carrying import Carrying
from offload.services.diff import Difference, State, diff_of
from offload.services.own_topics import OwnTopics
from seglog import ConcurrentModification

__all__ = ["Promoted", "Promotion"]

_ROUNDS = 20


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


class Promotion:
    """Promotes branches. `run` and `undo` hold the locks of both names."""

    def __init__(self, context: ArchiveContext, own: OwnTopics, carrying: Carrying, replicas: Replicas) -> None:
        self._context = context
        self._log = context.log
        self._volumes = context.volumes
        self._branches = context.branches
        self._handles = context.handles
        self._own = own
        self._carrying = carrying
        self._replicas = replicas

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
        carried = range(0)
        for _ in range(_ROUNDS):
            self._own.offload(topic)
            self._own.offload(side)
            main, new = (self._volumes.snapshot(vid) for vid in vids)
            pasts = [self._volumes.history(state.vid, state.lsn) for state in (main, new)]
            after = diff_of(State(main, pasts[0]), State(new, pasts[1]), self._context.reader)
            if after.left.appended and carry:
                more = self._carrying.run(main, after.shared_seq, side, new.vid)
                carried = range(carried.start, more.stop) if carried and more else more or carried
                new = self._volumes.snapshot(new.vid)
            elif after.left.appended and not leave:
                raise RecordsAfterFork(topic, side, after.left.appended, after.shared_seq)
            if not (self._own.drop(side) and self._own.drop(topic)):
                continue
            if self._fence(topic, main) and self._fence(side, new):
                break
        else:
            raise ConcurrentModification(topic)
        change()
        self._fence_newer(topic, main.vid, main.lsn + 1)
        self._follow(topic, side)
        return after, carried

    def _check_keep(self, topic: str, branch: str, keep: str, main: Vid) -> None:
        """Refuse a name for the former main before the first step. An earlier try may have given it already."""
        if MAIN in {branch, keep}:
            raise UnnamableBranch(topic, "be promoted" if branch == MAIN else "be the name of the former main")
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
        message = "its name changes: main is another branch from here on"
        lsn = self._own.put_after(name, state, CommitKind.CONFIG, message, at_ts_ms=state.max_ts_ms)
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
        self._replicas.forget(side)

    def _follow_main(self, topic: str) -> None:
        handle = self._handles.find(topic)
        if handle is not None and not self._log.has_topic(topic):
            self._handles.relocate(handle)
