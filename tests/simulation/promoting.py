"""Promotions in a simulation: directories make branches main, while others write, follow, reset and promote.

`Names` judges each ref at the moment when it lands:

NAMED-1  Main is never deleted. When main leaves a volume, that volume has another live name (PROMOTE-1, PROMOTE-2).
NAMED-2  If a promotion or its undo is acked, its volume was main at some moment of the call.
NAMED-3  From then on, no writer of main adds to the volume that main has left (SWITCH-1).

From its first promotion on, a volume is named as the refs say that have landed. MODEL-5 then holds its states. Two
directories that promote at the same time give the former main the same name, because only main's ref decides then.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from catalog import MAIN, Vid
from catalog.errors import (
    BranchExists,
    Diverged,
    KeyChanged,
    NoSuchBranch,
    NoSuchTopic,
    VolumeHasName,
)
from catalog.format.commit import CommitKind
from catalog.format.control import Ref
from catalog.format.encoding import StoredCommit
from catalog.format.keys import Key, branch_of, ref_key, refs_prefix, volume_of
from catalog.format.small_objects import decode_ref
from catalog.refs.oplog import NumberedEntry, Oplog
from catalog.refs.promotion import moved_main
from offload.errors import OtherRemote
from tests.seams.archive import context_of
from tests.simulation.directory import Directory
from tests.simulation.model import Broken, Held, Intent, Model
from tests.simulation.schedule import Schedule
from tests.simulation.tasks import TOPIC

__all__ = ["Promoting"]

_NEWEST = 20


class Names:
    """The names of the topic as they have landed, and their judge.

    `mains` are the volumes of main, oldest first. `left` are those that main has left by an acked promotion or undo.
    """

    def __init__(self, model: Model) -> None:
        self.mains: list[Vid] = []
        self.left: set[Vid] = set()
        self._live: dict[str, Vid | None] = {}
        self._model = model
        self._on_others = model.ground.on_body
        model.ground.on_body = self._on_body

    def _on_body(self, key: Key, body: bytes) -> None:
        commits = self._model.commits
        self._on_others(key, body)
        if key.startswith(refs_prefix(TOPIC)):
            self._on_ref(branch_of(key), decode_ref(body, key))
        vid = volume_of(key)
        if self._model.commits > commits and vid in self.left and vid is not None:
            newest = self._model.volumes[vid].pasts[-1].stored
            intent = self._model.intents.get(newest.hash)
            is_of_main = intent is not None and intent.topic == TOPIC and newest.commit.kind is not CommitKind.CONFIG
            self._hold(not is_of_main, f"{key} is a commit of main, which has left its volume")

    def _on_ref(self, branch: str, ref: Ref) -> None:
        self._live[branch] = ref.vid if ref.deleted_at_ms is None else None
        first = self._model.names.get((TOPIC, MAIN))
        if first is None:
            return  # nobody was told of main
        self.mains = self.mains or [held.vid for held in first if held.vid is not None]
        if branch == MAIN:
            self._hold(ref.deleted_at_ms is None, "main is deleted")
            if ref.vid != self.mains[-1]:
                former = self.mains[-1]
                self._hold(former in self._live.values(), f"main goes to {ref.vid}, and {former} has no name")
                self.mains.append(ref.vid)
                self.left.discard(ref.vid)
        if ref.vid in self.mains:
            known = self._model.names.get((TOPIC, branch), set())
            self._model.names[TOPIC, branch] = {Held(ref.vid, ref.deleted_at_ms)}
            moved = self._model.moved.setdefault((TOPIC, branch), set())
            moved |= {ref.vid, *(held.vid for held in known if held.vid is not None)}

    def _hold(self, is_so: bool, what: str) -> None:
        if not is_so:
            raise Broken(what)


class Promoting(Directory):
    """A directory that forks main, makes branches main, and takes that back.

    `promoting` is the promotion that has not ended yet: the branch, and the name of the former main.
    """

    def __init__(self, schedule: Schedule, model: Model, name: str) -> None:
        others = [each.names for each in schedule.tasks if isinstance(each, Promoting)]
        self.names = others[0] if others else Names(model)
        self.promoting: tuple[str, str] | None = None
        super().__init__(schedule, model, name)

    def _may_be_off_record(self, stored: StoredCommit) -> bool:
        """Judge the fence of a promotion, which is on nobody's record: a second call makes another one.

        It moves no bound, has no segments, and begins an epoch. Its volume is a main that was or is, or has the name
        of a branch of this topic.
        """
        commit = stored.commit
        is_fence = commit.kind is CommitKind.CONFIG and commit.message.startswith("its name changes")
        if is_fence:
            volume = self.model.volumes[commit.vid]
            last = volume.pasts[commit.lsn - 2] if 1 < commit.lsn <= len(volume.pasts) + 1 else None
            if last is not None:
                before = last.stored.commit
                self._hold(commit.bounds == before.bounds, f"the fence {commit.lsn} of {commit.vid} moves a bound")
                self._hold(commit.epoch > before.epoch, f"the fence {commit.lsn} of {commit.vid} begins no epoch")
            self._hold(not commit.segments, f"the fence {commit.lsn} of {commit.vid} has segments")
            vids = {held.vid for (topic, _), values in self.model.names.items() if topic == TOPIC for held in values}
            is_ours = commit.vid in vids or commit.vid in self.names.mains
            self._hold(is_ours, f"a promotion fences {commit.vid}, which has no name")
            self.model.intents.setdefault(stored.hash, Intent(f"{self.name}, which promotes", TOPIC))
        return is_fence

    def _act(self, name: str) -> None:
        """Act. If main left the volume of a writer that nobody has fenced yet, its next process is refused."""
        try:
            self._do(name)
        except OtherRemote:
            handle = context_of(self.archive).handles.find(TOPIC)
            if handle is None or handle.vid not in self.names.mains[:-1] or handle.vid == self.names.mains[-1]:
                raise
            self.parted.add(TOPIC)

    def _do(self, name: str) -> None:
        drawn = self.random.random()
        branches = sorted(branch for branch in self._alive() if branch.startswith("d"))
        if name in self.resetting or (TOPIC, MAIN) not in self.model.names:
            super()._act(name)
        elif self.promoting is not None and drawn < 0.5:
            self._promote(*self.promoting)
        elif drawn < 0.12:
            self._fork(self.some_point())
        elif drawn < 0.3 and branches and self.promoting is None:
            self._promote(self.random.choice(branches), f"d-was-{len(self.names.mains)}")
        elif drawn < 0.36:
            self._take_back()
        else:
            super()._act(name)

    def _promote(self, branch: str, keep: str) -> None:
        self.promoting, known = (branch, keep), self.model.names[TOPIC, branch]

        def promote() -> tuple[Vid, Vid | None]:
            done = self.archive.branches.promote_branch(TOPIC, branch, keep=keep, leave=True)
            return done.vid, next(held.vid for held in self.model.names[TOPIC, done.keep])

        try:
            has_moved = self._moves_main(branch, promote)
        except (BranchExists, KeyChanged, VolumeHasName):
            self.promoting = None
        except (NoSuchBranch, NoSuchTopic) as error:  # a LIST may miss the other names of the topic
            was_there = known == {Held(held.vid) for held in known}
            self._hold(not was_there or self.model.names[TOPIC, branch] is not known, f"{branch}: {error}")
            self.promoting = None
        else:
            if has_moved:
                self.promoting = None
                self.model.counts["promotions"] += 1

    def _take_back(self) -> None:
        """Undo the promotion that gave main its value, if it is among the newest operations."""
        found = next(filter(self._is_newest, islice(Oplog(self.store).entries(), _NEWEST)), None)
        moved = None if found is None else moved_main(found.entry)
        if found is None or moved is None:
            return

        def undo() -> tuple[Vid, Vid | None]:
            self.archive.history.undo(found.number)
            return moved.former, moved.vid

        if self._moves_main(moved.keep, undo):
            self.model.counts["promotions taken back"] += 1

    def _is_newest(self, found: NumberedEntry) -> bool:
        main = ref_key(TOPIC, MAIN)
        values = {change.subject: change.value for change in found.entry.changes}
        return moved_main(found.entry) is not None and values[main] == self.model.ground.get(main)

    def _moves_main(self, branch: str, act: Callable[[], tuple[Vid, Vid | None]]) -> bool:
        """Run an operation that moves main, and returns its volumes now and before. Return False if we are fenced."""
        begun = max(len(self.names.mains) - 1, 0)
        for name in sorted({TOPIC, f"{TOPIC}@{branch}"} & self.journals.keys()):
            if context_of(self.archive).handles.find(name) is not None:
                self._vid(name)  # a crash may have hidden it
        self.may_leave |= {TOPIC: None, f"{TOPIC}@{branch}": None}
        try:
            vid, former = self._with_others(act)
        except Diverged as error:
            self._check_parted(error.topic, error)
            self.parted.add(error.topic)
            return False
        self._hold(vid in self.names.mains[begun:], f"main was said to be {vid}, and was {self.names.mains[begun:]}")
        self.parted -= {TOPIC, f"{TOPIC}@{branch}"}
        self.names.left |= {each for each in (former,) if each is not None and each != self.names.mains[-1]}
        return True

    def _take_over(self, name: str) -> None:
        """Check SWITCH-2, too: the volume that a new writer of main writes was main meanwhile."""
        begun, is_new = max(len(self.names.mains) - 1, 0), name not in self.journals
        super()._take_over(name)
        if name == TOPIC and is_new and self.names.mains:
            vid = self.vids[name]
            self._hold(vid in self.names.mains[begun:], f"{vid} was taken over, and is not main any more")

    def _vid(self, name: str) -> Vid:
        """Return the volume. Until a promotion ends, a journal belongs to the volume that its topic had before."""
        if name in self.may_leave and name in self.vids:
            return self._handle(name).vid
        return super()._vid(name)
