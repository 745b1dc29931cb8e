"""The past of a branch: the commits that it stands on, loaded on demand.

The past runs through one or more volumes. The commits of one volume are a span. The first span begins at a root, or at
the oldest state that is kept. Each span ends at a fork point, and the last one at the branch itself. The module is pure
except for `load`, which the caller gives.

HIST-1  The reader goes through a span in batches that grow. So commits before or after the wanted ones cost little: it
    looks at half of the fetched commits, or more.
HIST-2  Below the boundary, a key may hold anything (VOL-6). GC may pass the oldest commits while a reader looks at
    them. So if commits there are missing or do not join, that is `HistoryCollected`, and no damage.
HIST-3  A checkpoint gives the latest time and the highest seq of all commits up to it. So `oldest_first` may begin with
    the last checkpoint that lies before the wanted commits.
HIST-4  The cut of a fork is a seq of what its parent had after its last truncation. The states before that truncation
    had other records with these seqs, so the cut takes none of them away. `whole_at` gives a past for such a state.
    Without it, each commit before the fork is cut. So a seq that a branch has itself never means a record that a
    parent lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from catalog.errors import HistoryCollected, InvalidObject, NoSuchObject
from catalog.format.commit import Commit, CommitKind, ForkPoint, SegmentRef
from catalog.format.control import Mark
from catalog.format.encoding import StoredCommit
from catalog.format.ids import LsnNumber, Vid
from catalog.format.keys import commit_key
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass

_FIRST_BATCH, _LARGEST_BATCH = 4, 64
_TRIES = 5
H = TypeVar("H")
T = TypeVar("T")

Load = Callable[[Vid, int, int], Sequence[StoredCommit]]


@dataclass(frozen=True, slots=True)
class PastCommit:
    """A commit of a history. With `cut_seq`, a later fork took its records only up to that seq."""

    commit: Commit
    hash: bytes
    cut_seq: int | None = None

    @property
    def head_seq(self) -> int:
        """Return the topic's head after the commit, as far as the history took it."""
        head_seq = self.commit.bounds.head_seq
        return head_seq if self.cut_seq is None else min(head_seq, self.cut_seq)

    @property
    def at_seq(self) -> int:
        """Return the topic's head when the operation happened, as far as the history took it."""
        at_seq = self.commit.at_seq
        return at_seq if self.cut_seq is None else min(at_seq, self.cut_seq)

    def segments(self) -> Iterator[tuple[SegmentRef, int]]:
        """Yield the segments that the commit adds, each with the last seq that is part of the history."""
        for ref in self.commit.segments:
            last = ref.last_seq if self.cut_seq is None else min(ref.last_seq, self.cut_seq)
            if last >= ref.first_seq:
                yield ref, last

    def point(self, seq: int | None = None) -> ForkPoint:
        """Return the fork point whose last commit is this one, cut at `seq`."""
        cuts = [cut for cut in (seq, self.cut_seq) if cut is not None and cut < self.commit.bounds.head_seq]
        return ForkPoint(self.commit.vid, self.commit.lsn, min(cuts, default=None))


@dataclass(frozen=True, slots=True)
class BranchSpan:
    """The commits `first_lsn` to `last_lsn` of one volume, of which records up to `cut_seq` count.

    A span is empty if the volume has no commits of its own. `marks` are the volume's checkpoints, ascending. `is_cut`
    means that GC collected the commits before the span, in this volume or in a parent.
    """

    vid: Vid
    first_lsn: int
    last_lsn: int
    cut_seq: int | None = None
    marks: tuple[Mark, ...] = ()
    is_cut: bool = False

    def __len__(self) -> int:
        return max(self.last_lsn - self.first_lsn + 1, 0)


class History:
    """The past of a branch. `spans` are newest first.

    `load(vid, first_lsn, last_lsn)` gives commits, both included, oldest first. `is_passed` means that GC has passed
    the newest commit. GC then keeps only what the volume has after that commit. `vid` is the branch's own volume, which
    may have no commit yet; None if there is no branch.
    """

    def __init__(self, spans: Sequence[BranchSpan], load: Load, *, is_passed: bool = False) -> None:
        self.is_passed = is_passed
        self.vid = spans[0].vid if spans else None
        self.spans = tuple(span for span in spans if len(span))
        self._load = load

    def __len__(self) -> int:
        return sum(map(len, self.spans))

    def __iter__(self) -> Iterator[PastCommit]:
        """Yield the commits, newest first."""
        for span in self.spans:
            last, size = span.last_lsn, _FIRST_BATCH
            while last >= span.first_lsn:
                first = max(span.first_lsn, last - size + 1)
                yield from reversed(self._past(span, first, last))
                last, size = first - 1, min(2 * size, _LARGEST_BATCH)

    @checked
    def followed_by(self, commits: Sequence[StoredCommit]) -> History:
        """Return this past, followed by `commits` of one volume, ascending, which are in no store."""
        if not commits:
            return self
        first, last = commits[0].commit, commits[-1].commit

        def load(vid: Vid, first_lsn: int, last_lsn: int) -> Sequence[StoredCommit]:
            if vid == first.vid and first_lsn >= first.lsn:
                return commits[first_lsn - first.lsn : last_lsn - first.lsn + 1]
            return self._load(vid, first_lsn, last_lsn)

        return History((BranchSpan(first.vid, first.lsn, last.lsn), *self.spans), load, is_passed=self.is_passed)

    @property
    def is_cut(self) -> bool:
        """Tell whether GC collected what came before the first commit.

        That commit then stands for all of it, as one state.
        """
        return bool(self.spans) and self.spans[-1].is_cut

    @property
    def first_mark(self) -> Mark | None:
        """Return the latest time and the highest seq of all commits up to the first; None if that is no checkpoint.

        A run of GC that ended early may have left the first commit without its mark (VCKPT-3). Then the commit itself
        is read.
        """
        span = self.spans[-1]
        mark = next((mark for mark in span.marks if mark.lsn == span.first_lsn), None)
        if mark is None:
            [first] = self._load(span.vid, span.first_lsn, span.first_lsn)
            if first.checkpoint is None:
                return None
            mark = Mark(span.first_lsn, first.checkpoint.max_ts_ms, first.checkpoint.max_seq)
        return mark if span.cut_seq is None else mark._replace(max_seq=min(mark.max_seq, span.cut_seq))

    @checked
    def oldest_first(self, is_passed: Callable[[Mark], bool] | None = None) -> Iterator[PastCommit]:
        """Yield the commits, oldest first.

        Begin with the commit of the last checkpoint that `is_passed` accepts, or with the oldest commit.
        """
        begin, first_lsn = self._begin(is_passed)
        for span in reversed(self.spans[:begin]):
            first, size = first_lsn or span.first_lsn, _FIRST_BATCH
            while first <= span.last_lsn:
                last = min(first + size - 1, span.last_lsn)
                yield from self._past(span, first, last)
                first, size = last + 1, min(2 * size, _LARGEST_BATCH)
            first_lsn = 0

    @checked
    def nth(self, back: int) -> PastCommit | None:
        """Return the commit that lies `back` commits before the newest; None if there is none."""
        for span in self.spans:
            if back < len(span):
                return self._one(span, span.last_lsn - back)
            back -= len(span)
        return None

    @checked
    def at_lsn(self, lsn: LsnNumber) -> PastCommit | None:
        """Return the branch's own commit with that LSN, else its parent's before the fork, and so on."""
        for span in self.spans:
            if span.first_lsn <= lsn <= span.last_lsn:
                return self._one(span, lsn)
        return None

    @checked
    def at(self, vid: Vid, lsn: LsnNumber) -> PastCommit | None:
        """Return the commit of that volume, if it is part of this past; otherwise None."""
        for span in self.spans:
            if span.vid == vid and span.first_lsn <= lsn <= span.last_lsn:
                return self._one(span, lsn)
        return None

    @checked
    def target_of(self, commit: Commit) -> str:
        """Return the target that means this commit of the past, whatever commits follow.

        `lsn:N` of an inherited commit would mean the branch's own commit N once it has one.
        """
        return f"lsn:{commit.lsn}" if commit.vid == self.vid else f"lsn:{commit.lsn}@{commit.vid}"

    @checked
    def whole_at(self, vid: Vid, lsn: LsnNumber) -> History | None:
        """Return this past with that commit, and those up to the next truncation, whole (HIST-4).

        Return None if they are whole, or cut for good. Reads on to the next commit with records, and to the truncation
        only if the cut takes some of them.
        """
        number = next((n for n, span in enumerate(self.spans) if span.vid == vid), None)
        if number is None or (cut_seq := self.spans[number].cut_seq) is None:
            return None
        span, is_beyond = self.spans[number], False
        for past in History([replace(span, first_lsn=lsn)], self._load).oldest_first():
            commit = past.commit
            if commit.lsn > lsn and commit.truncate_from is not None and is_beyond:
                after = replace(span, first_lsn=commit.lsn, is_cut=False)
                before = replace(span, last_lsn=commit.lsn - 1, cut_seq=None)
                spans = (*self.spans[:number], after, before, *self.spans[number + 1 :])
                return History(spans, self._load, is_passed=self.is_passed)
            is_beyond = is_beyond or commit.bounds.head_seq > cut_seq
            if commit.lsn > lsn and commit.kind is CommitKind.OFFLOAD and not is_beyond:
                break
        return None

    @checked
    def after(self, vid: Vid, lsn: LsnNumber) -> Iterator[PastCommit]:
        """Yield the commits after that commit of a volume, newest first."""
        for past in self:
            if past.commit.vid == vid and past.commit.lsn <= lsn:
                return
            yield past

    def _begin(self, is_passed: Callable[[Mark], bool] | None) -> tuple[int, int]:
        """Return how many spans to read, and the LSN to begin with in the oldest of them. 0 means its first LSN."""
        if is_passed is not None:
            for number, span in enumerate(self.spans):
                inside = (mark for mark in span.marks if span.first_lsn <= mark.lsn <= span.last_lsn)
                passed = [mark.lsn for mark in inside if is_passed(mark)]
                if passed:
                    return number + 1, passed[-1]
        return len(self.spans), 0

    def _one(self, span: BranchSpan, lsn: int) -> PastCommit:
        [past] = self._past(span, lsn, lsn)
        return past

    def _past(self, span: BranchSpan, first: int, last: int) -> list[PastCommit]:
        return [PastCommit(stored.commit, stored.hash, span.cut_seq) for stored in self._load(span.vid, first, last)]


class KeptCommits:
    """A `Load` for a caller that knows the boundaries `known`.

    It calls `load`, and checks that the batches join by their hashes. It raises `HistoryCollected` if `load` finds
    damage, or nothing, below the boundary that `boundary_of` gives now.
    """

    def __init__(self, load: Load, boundary_of: Callable[[Vid], int], boundaries: Mapping[Vid, int]) -> None:
        self._load = load
        self._boundary_of = boundary_of
        self._known = boundaries
        self._joints: dict[tuple[Vid, int], bytes] = {}

    def __call__(self, vid: Vid, first_lsn: int, last_lsn: int) -> Sequence[StoredCommit]:
        try:
            commits = self._load(vid, first_lsn, last_lsn)
            if commits:
                self._join(vid, first_lsn - 1, commits[0].commit.parent_hash)
                self._join(vid, last_lsn, commits[-1].hash)
        except (NoSuchObject, InvalidObject) as trouble:
            boundary = self._boundary_of(vid)
            if boundary <= max(self._known[vid], first_lsn):
                raise
            raise HistoryCollected(vid, first_lsn, boundary) from trouble
        return commits

    def _join(self, vid: Vid, lsn: int, digest: bytes) -> None:
        """Compare the hash of the commit at `lsn`, as the commit gives it, with the parent hash of the next commit."""
        if self._joints.setdefault((vid, lsn), digest) != digest:
            raise InvalidObject(commit_key(vid, lsn + 1), f"it does not continue lsn {lsn}: the parent hash is another")


def retry_if_collected(history: Callable[[], H], question: Callable[[H], T]) -> T:
    """Return the answer of `question` to `history`, which returns a history or a value that has one.

    If GC passes the oldest commits meanwhile, ask again with a new history. Raise `HistoryCollected` after `_TRIES`
    tries.
    """
    for _ in range(_TRIES - 1):
        with contextlib.suppress(HistoryCollected):
            return question(history())
    return question(history())


NO_HISTORY = History((), lambda _vid, _first, _last: ())
