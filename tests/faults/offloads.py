"""The life of a topic over a store that fails, and the judge of the store's content afterwards.

A life is a row of steps: append and seal, offload in several blocks, delete, append and offload again. Then it releases
with the read-back, reads, restores a branch and reads the branch. `go_on` is one process: it opens the directory and
continues with the step that failed. The process ends at its first error, or repeats the step, as a daemon does. The
judge looks at the store itself, past all faults. No power is cut, so the directory is not synced.

JUDGE-1  Nothing is visible that is not whole: each object that a commit names is there, and every byte reads back.
JUDGE-2  A report of a call is true: its commits, each once and in order, its branch, its reads. If a call fails with
    anything but `OutcomeUnknown`, the commit that it made or the branch that it named is not there. Only the store may
    excuse it: it said that it refused that very object (`lied_about`).
JUDGE-3  An error names the fault. There is one writer, so no error names a lost race. An error that names damage or a
    missing object needs an answer that reported one.
JUDGE-4  In the end there is one commit for each thing that happened. An upload is left only where the fault hid it from
    its maker, and then `orphan_uploads` finds it.

The judge does not see an `OutcomeUnknown` without need (`tests.faults.verdicts` does, for single faults). It does not
see the pauses between tries, nor a commit that an earlier call was in doubt about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import offload
import seglog
from catalog import Branches, CommitKind, Snapshot, Volumes
from catalog.errors import BranchExists, CatalogError, Corrupt, Missing, NoSuchTopic, OutcomeUnknown, Unavailable
from catalog.format import keys
from catalog.objects.object_store import ObjectStore
from offload import Archive, ColdSettings, OffloadSettings
from offload.errors import OffloadError
from offload.handles import Handle
from offload.read.cold_reader import ColdReader
from seglog import Log, LogSettings
from tests.faults.files import UnsyncedFiles
from tests.faults.store import CountingStore
from tests.seams.archive import context_of
from tests.work import tell

__all__ = ["BLOCK_BYTES", "SMALL_BLOCKS", "SMALL_LOG", "Figures", "Life"]

TOPIC = "t"
BRANCH = "then"
BLOCK_BYTES = 160 << 10
FIRST = [b"%03d " % number + bytes(15_000) for number in range(24)]
SECOND = [b"%03d more" % number for number in range(6)]
_ALL = FIRST + SECOND
_BEFORE = {"before": 4}
_RANGE = {"start": 3, "end": 14}  # of both segments, and neither whole
_KINDS = [CommitKind.OFFLOAD, CommitKind.DELETE, CommitKind.OFFLOAD]
SMALL_LOG = LogSettings(max_record_bytes=16 << 10, segment_max_events=12, wal_file_bytes=1 << 20)
_COLD = ColdSettings(cache_bytes=0, connections=2, get_attempts=1)
_DELETE_STEP = 2
_DAY_MS = 24 * 3600 * 1000


def _with_small_blocks() -> OffloadSettings:
    """Return settings with blocks smaller than S3 takes parts. The tests run thousands of lives."""
    settings = OffloadSettings(codec="none", concurrency=2)
    object.__setattr__(settings, "block_size", BLOCK_BYTES)
    return settings


SMALL_BLOCKS = _with_small_blocks()


class _KeptOpen(CountingStore):
    """A store that stays open. An archive closes its store, and the judge still reads it."""

    def close(self) -> None:
        pass


class _TwoDaysLater(_KeptOpen):
    """The same store two days later, for the later search for orphans."""

    def time_ms(self) -> int | None:
        now_ms = super().time_ms()
        return None if now_ms is None else now_ms + 2 * _DAY_MS


class _TwoDaysOn:
    """The clock of that search."""

    def now_ms(self) -> int:
        return seglog.files.clock.SystemClock().now_ms() + 2 * _DAY_MS


class Life:
    """The life of a topic in `directory`.

    Each store that `open_store` returns leads to the content of `store`; `store` itself has no faults. `wrong` lists
    wrong verdicts, `dangling` names without their object, `doubled` commits that are there twice. `uploads_left` counts
    the uploads that the end found as orphans and aborted. `put_off` says why the remote hears of a delete later. The
    delete takes the oldest records, or with `deletes_range` some in the middle.
    """

    def __init__(
        self, directory: Path, open_store: Callable[[], ObjectStore], store: ObjectStore, *, deletes_range: bool = False
    ) -> None:
        self._directory = directory
        self._condition = _RANGE if deletes_range else _BEFORE
        self._live = FIRST[:2] + _ALL[14:] if deletes_range else _ALL[3:]
        self._open_store = open_store
        self._store = store
        self._steps: tuple[Callable[[Log, Archive], None], ...] = (
            self._append_first, self._offload, self._delete, self._append_second, self._offload, self._release,
            self._read, self._restore, self._read_branch, self._offload,
        )  # fmt: skip
        self._step = 0
        self._failed_restores: list[CatalogError] = []
        self._is_branch_untold = False
        self._doubted: set[bytes] = set()
        self._doubted_branch = False
        self._denied: set[str] = set()
        self.uploads_left = 0
        self.put_off: list[str] = []
        self.errors: list[Exception] = []
        self.wrong: list[str] = []
        self.dangling: list[str] = []
        self.doubled: list[str] = []

    @property
    def is_over(self) -> bool:
        return self._step == len(self._steps)

    def go_on(self, stays_for: int = 0) -> None:
        """Run one process. It repeats a step after each of the first `stays_for` errors and ends at the next error.

        The process also ends at the end of the life.
        """
        with (
            seglog.open(self._directory, files=UnsyncedFiles(), settings=SMALL_LOG) as log,
            self._attach(log, self._open_store()) as archive,
        ):
            while not self.is_over:
                try:
                    self._steps[self._step](log, archive)
                except (CatalogError, OffloadError) as error:
                    self.errors.append(error)
                    self._judge_denial(archive, error)
                    self._judge_store()
                    if stays_for == 0:
                        return
                    stays_for -= 1
                else:
                    self._step += 1
        self._judge_store()

    def judge_errors(self, *, damage_was_told: bool, absence_was_told: bool, lied_about: Collection[str]) -> None:
        """Judge the errors of the life.

        `lied_about` has "commit" or "ref" if the store reported a refusal of that object and still stored it.
        """
        if self._is_branch_untold and "ref" not in lied_about:
            self.wrong.append("a restore failed as if it had made nothing, and its branch is there")
        self.wrong += [f"a call says that it wrote no {what}, and it is there" for what in self._denied - {*lied_about}]
        for error in self.errors:
            allowed = (
                isinstance(error, Unavailable)
                or (damage_was_told and isinstance(error, (Corrupt, OffloadError)))
                or (absence_was_told and isinstance(error, Missing))
            )
            if not allowed:
                self.wrong.append(f"{type(error).__name__}: {error}")

    def judge_end(self) -> None:
        """Judge the end of the life as a fresh process, a fresh directory and the store itself show it."""
        with (
            seglog.open(self._directory, files=UnsyncedFiles(), settings=SMALL_LOG) as log,
            self._attach(log, _KeptOpen(self._store)) as archive,
        ):
            assert archive.offload(TOPIC, drop_hot=True).published == ()
            self._expect("log", [record.value for record in log.topic(TOPIC).read()], self._live)
            status = archive.status.topic(TOPIC)
            left = (status.pending_lsn, status.diverged_lsn, status.unfinished_attempts, status.waiting_deletes)
            if left != (None, None, 0, 0):
                self.wrong.append(f"left behind: {left}")
            kinds = [past.commit.kind for past in archive.history.commits(TOPIC)][::-1]
            if kinds != _KINDS:
                self.doubled.append(f"{[kind.name for kind in kinds]}")
            self._judge_uploads(archive)
        with (
            seglog.open(self._directory.with_name("elsewhere"), files=UnsyncedFiles(), settings=SMALL_LOG) as log,
            self._attach(log, _KeptOpen(self._store)) as archive,
        ):
            self._expect("elsewhere", [record.value for record in archive.read(TOPIC)], self._live)
            self._expect("branch", [record.value for record in archive.read(f"{TOPIC}@{BRANCH}")], FIRST)

    # ------------------------------------------------------------------ steps

    def _append_first(self, log: Log, _: Archive) -> None:
        self._append(log, FIRST)

    def _append_second(self, log: Log, _: Archive) -> None:
        self._append(log, SECOND)

    def _append(self, log: Log, values: list[bytes]) -> None:
        if not log.has_topic(TOPIC):
            log.create_topic(TOPIC, seglog.TopicConfig(keep_history=True))
        log.topic(TOPIC).append(values)
        log.topic(TOPIC).seal()

    def _offload(self, _: Log, archive: Archive) -> None:
        result = archive.offload(TOPIC)
        self._judge_reported([published.lsn for published in result.published])
        self._judge_done(1 if self._step < _DELETE_STEP else 3)

    def _delete(self, _: Log, archive: Archive) -> None:
        told = archive.delete(TOPIC, **self._condition)
        self._judge_reported([told.lsn] if told.lsn else [])
        if told.lsn:
            self._judge_done(2)
        else:
            self.put_off.append(told.waits_for or "")  # deleted here; the next offload tells the remote
            handle = context_of(archive).handles.find(TOPIC)
            if handle is not None and handle.pending_body is not None:
                self._doubted.add(handle.pending_body)  # its answer may be lost

    def _release(self, log: Log, archive: Archive) -> None:
        result = archive.offload(TOPIC, drop_hot=True)
        self._judge_reported([published.lsn for published in result.published])
        if log.topic(TOPIC).inner.hot_floor != len(_ALL) + 1:
            self.wrong.append("a release without an error left hot copies")

    def _read(self, log: Log, _: Archive) -> None:
        self._expect("read", [record.value for record in log.topic(TOPIC).read()], self._live)

    def _restore(self, _: Log, archive: Archive) -> None:
        try:
            restored = archive.restore(TOPIC, to="lsn:1", name=BRANCH)
        except BranchExists:
            if not self._failed_restores:
                raise
            # An earlier call made the branch, lost the answer and told the volume. The next step reads the branch.
            vid = str(Branches(Volumes(self._store)).resolve(TOPIC, BRANCH))
            self._is_branch_untold = not any(
                isinstance(error, OutcomeUnknown) and vid in str(error.hint) for error in self._failed_restores
            )
            return
        except CatalogError as error:
            self._failed_restores.append(error)
            raise
        self._expect("restored", [restored.records], [len(FIRST)])

    def _read_branch(self, _: Log, archive: Archive) -> None:
        self._expect("branch", [record.value for record in archive.read(f"{TOPIC}@{BRANCH}")], FIRST)

    # ------------------------------------------------------------------ judging

    def _attach(self, log: Log, store: ObjectStore) -> Archive:
        return offload.attach(log, store=store, settings=offload.Settings().with_parts(SMALL_BLOCKS, _COLD))

    def _expect(self, what: str, found: Iterable[object], wanted: Iterable[object]) -> None:
        if list(found) != list(wanted):
            self.wrong.append(f"{what}: not what was written")

    def _judge_denial(self, archive: Archive, error: Exception) -> None:
        """Record a denial if the object exists that the error says was not written."""
        handle = context_of(archive).handles.find(TOPIC)
        if handle is not None and handle.pending_lsn is not None and handle.pending_body is not None:
            if isinstance(error, OutcomeUnknown):
                self._doubted.add(handle.pending_body)
            elif handle.pending_body not in self._doubted and self._has_commit(handle):
                self._denied.add("commit")
        is_restore = self._steps[self._step] == self._restore
        if is_restore and not isinstance(error, OutcomeUnknown) and not self._doubted_branch and self._has_branch():
            self._denied.add("ref")
        self._doubted_branch = self._doubted_branch or (is_restore and isinstance(error, OutcomeUnknown))

    def _has_commit(self, handle: Handle) -> bool:
        assert handle.pending_lsn is not None
        try:
            return self._store.get(keys.commit_key(handle.vid, handle.pending_lsn)) == handle.pending_body
        except Missing:
            return False

    def _has_branch(self) -> bool:
        try:
            Branches(Volumes(self._store)).resolve(TOPIC, BRANCH)
        except Missing:
            return False
        return True

    def _judge_done(self, commits: int) -> None:
        """Check that after a call without error its commits are there, each once, and nothing is in doubt."""
        vid = Branches(Volumes(self._store)).resolve(TOPIC)
        kinds = [stored.commit.kind for stored in Volumes(self._store).next_commits(vid, 0)]
        if kinds != _KINDS[:commits]:
            self.wrong.append(f"a call ended well, and the commits are {[kind.name for kind in kinds]}")

    def _judge_reported(self, lsns: list[int]) -> None:
        if not lsns:
            return
        vid = Branches(Volumes(self._store)).resolve(TOPIC)
        there = {keys.lsn_of(key) or 0 for key in self._store.list(keys.commits_prefix(vid))}
        if not there.issuperset(lsns):
            self.wrong.append(f"commits {lsns} were reported, there are {sorted(there)}")

    def _judge_store(self) -> None:
        """Check that nothing is visible, or all of a state that the topic once had."""
        volumes = Volumes(self._store)
        branches = Branches(volumes)
        try:
            vid = branches.resolve(TOPIC)
        except NoSuchTopic:
            if any("/log/" in key for key in self._store.list("")):
                self.wrong.append("commits without a name that leads to them")
            return
        snapshot = volumes.snapshot(vid)
        if self._has_all_objects(snapshot):
            head_seq = snapshot.bounds.head_seq
            with closing(ColdReader(self._store, _COLD)) as reader:
                found = [record.value for record in reader.records(snapshot, 1, head_seq)]
            states = [(0, []), (24, FIRST), (24, self._live[: -len(SECOND)]), (30, self._live)]
            if (head_seq, found) not in states:
                self.wrong.append(f"a state that never was: {len(found)} records up to seq {head_seq}")

    def _has_all_objects(self, snapshot: Snapshot) -> bool:
        is_whole = True
        for view in snapshot.segments:
            lengths = {
                keys.data_key(view.vid, view.ref.sid): view.ref.data_length,
                keys.index_key(view.vid, view.ref.sid): view.ref.index_head_length + view.ref.index_trailer_length,
            }
            for key, length in lengths.items():
                try:
                    is_whole_here = self._store.head(key).size == length
                except Missing:
                    is_whole_here = False
                if not is_whole_here:
                    self.dangling.append(key)
                    is_whole = False
        return is_whole

    def _judge_uploads(self, archive: Archive) -> None:
        left = set(self._store.list_uploads(""))
        self.uploads_left = len(left)
        if not left:
            return
        store = _TwoDaysLater(self._store)
        with (
            seglog.open(self._directory.with_name("later"), files=UnsyncedFiles(), settings=SMALL_LOG) as log,
            offload.attach(
                log, store=store, settings=offload.Settings().with_parts(SMALL_BLOCKS, _COLD), clock=_TwoDaysOn()
            ) as elsewhere,
        ):
            known = elsewhere.upkeep.orphan_uploads()
            for upload in known:
                elsewhere.upkeep.abort(upload)
        if {(upload.key, upload.upload_id) for upload in known} != left or list(self._store.list_uploads("")):
            self.wrong.append(f"uploads that nobody finds: {left}")
        if archive.upkeep.orphan_uploads(min_age_ms=0):
            self.wrong.append("an upload that was aborted is an orphan")


@dataclass(slots=True)
class Figures:
    """Count the lives, faults and wrong results under plans of faults."""

    plans: int = 0
    struck: int = 0
    rounds: int = 0
    faults: dict[str, list[str]] = field(
        default_factory=lambda: {name: [] for name in ("wrong", "dangling", "doubled", "orphaned", "unfinished")}
    )

    def __str__(self) -> str:
        names = {"wrong": "wrong verdicts", "dangling": "dangling references", "doubled": "doubled commits"}
        counts = ", ".join(f"{names.get(kind, kind)}: {len(found)}" for kind, found in self.faults.items())
        return f"{self.plans} plans, {self.struck} faults struck, {self.rounds} rounds; {counts}"

    def add(self, plan: object, life: Life, struck: int, *, hides_uploads: bool) -> None:
        """Add a life. `hides_uploads` says that a fault may leave an upload that its maker cannot know or abort."""
        self.plans += 1
        self.struck += struck
        self.rounds += 1 + len(life.errors)
        if life.uploads_left and not hides_uploads:
            self.faults["orphaned"].append(f"{plan}: {life.uploads_left} uploads")
        for kind in ("wrong", "dangling", "doubled"):
            self.faults[kind] += [f"{plan}: {found}" for found in getattr(life, kind)]
        if not life.is_over:
            self.faults["unfinished"].append(f"{plan}: {life.errors}")

    def check(self) -> None:
        tell(str(self))
        for kind, found in self.faults.items():
            assert not found, f"{kind}: {found[:5]}"
