"""What a simulation must show: a plain model of every volume, and the judge of what happens in the store.

A record is one side of a transfer between two accounts: debit and credit are of one append, and go together. So the sum
over all records of any whole commit's state is 0, whoever reads it (the bank), and the records are those of the model.

The judge looks at each object as it lands and goes (invariants of DESIGN section 6):

J3  Every object that a commit names was there before the commit's key was.
J4  One commit at most for each (volume, LSN): of one hash, whoever races, sends late or again. LSNs are dense, each
    commit continues the one before it, epochs never fall, boundaries only rise, and no segment is added that is older
    than what was said to be collected.
J5  What a name, a tag, a pin or the window promises is there, at any time, and reads back as the model has it. No
    volume that a name leads to is closed.
J7  What was acked is found.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from blake3 import blake3
from pyroaring import BitMap

from catalog import CommitKind, ForkPoint, SegmentView, Snapshot, Vid, Volumes, keys
from catalog.commit import NO_PARENT
from catalog.control import DEAD
from catalog.encoding import StoredCommit, decode_commit_at
from catalog.errors import CatalogError
from catalog.gid import Sid
from catalog.keys import Key
from catalog.objects.base import ObjectStore
from catalog.small_objects import decode_boundary, decode_control_of
from tests.simulation.ground import Ground

__all__ = ["Broken", "Entry", "Held", "Model", "Op", "entries_in", "records_of"]

_NO_CUT = 2**63
_ENTRY = struct.Struct("<QQBiQQ")


class Broken(AssertionError):
    """A promise is."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One side of a transfer. `partner` is the other side's seq, `batch` the first seq of their append."""

    seq: int
    ts_ms: int
    account: int
    amount: int
    partner: int
    batch: int

    def packed(self) -> bytes:
        return _ENTRY.pack(self.seq, self.ts_ms, self.account, self.amount, self.partner, self.batch)


State = dict[int, Entry]


def entries_in(body: bytes) -> Iterator[Entry]:
    return (Entry(*fields) for fields in _ENTRY.iter_unpack(body))


def records_of(store: ObjectStore, snapshot: Snapshot, known: dict[Sid, bytes] | None = None) -> State:
    """What `snapshot` shows, by the objects that it names. `known` keeps their bodies."""
    found: State = {}
    for view in snapshot.segments:
        deleted = BitMap.deserialize(view.deleted) if view.deleted else BitMap()
        for entry in entries_in(_body(store, view, known)):
            if view.first <= entry.seq <= view.last and entry.seq - view.ref.first_seq not in deleted:
                found[entry.seq] = entry
    return found


def _body(store: ObjectStore, view: SegmentView, known: dict[Sid, bytes] | None) -> bytes:
    key = keys.data_key(view.vid, view.ref.sid)
    if known is not None and view.ref.sid in known:
        store.head(key)
        return known[view.ref.sid]
    body = store.get(key)
    if blake3(body).digest() != view.ref.data_hash:
        raise Broken(f"{key} is not what its commit says")
    if known is not None:
        known[view.ref.sid] = body
    return body


Op = Callable[[State], State]
"""What a commit does to the records."""


@dataclass(slots=True)
class Past:
    """A commit that landed, and the records after it."""

    stored: StoredCommit
    state: State
    head_seq: int
    max_ts_ms: int
    collected_before_ms: int


@dataclass(slots=True)
class Volume:
    """`start` is its state before any commit of its own."""

    start: Past | None
    parent: ForkPoint | None
    start_hash: bytes
    start_state: State
    start_head_seq: int
    is_whole: bool
    pasts: list[Past] = field(default_factory=list[Past])
    boundary: int = 0

    def state(self, lsn: int) -> State:
        return self.pasts[lsn - 1].state if lsn else self.start_state

    def head_seq(self, lsn: int) -> int:
        return self.pasts[lsn - 1].head_seq if lsn else self.start_head_seq

    def promised(self, since_ms: int) -> range:
        """LSNs whose state was the newest at some time since then."""
        first = len(self.pasts)
        while first and self.pasts[first - 1].stored.commit.at_ts_ms > since_ms:
            first -= 1
        return range(first, len(self.pasts) + 1)


@dataclass(frozen=True, slots=True)
class Held:
    """What a branch's name may be found to be: `vid` None is absent; deleted or not."""

    vid: Vid | None
    deleted_at_ms: int | None = None


class Model:
    """`names`, `tags` and `pins` are what was acked, each with all that it may be after answers that got lost."""

    def __init__(self, ground: Ground, now_ms: Callable[[], int], window_ms: int, grace_ms: int) -> None:
        self.ground = ground
        self._now_ms = now_ms
        self.window_ms = window_ms
        self.grace_ms = grace_ms
        self.volumes: dict[Vid, Volume] = {}
        self.intents: dict[bytes, Op] = {}
        self.acked: set[tuple[Vid, int, bytes]] = set()
        self.names: dict[tuple[str, str], set[Held]] = {}
        self.tags: dict[tuple[str, str], set[ForkPoint | None]] = {}
        self.pins: dict[Key, tuple[ForkPoint, int]] = {}
        self.checked = 0
        self.commits = 0
        self.gone = 0
        self.collections = 0
        self._bodies: dict[Sid, bytes] = {}
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
            self.volumes[vid] = Volume(None, None, NO_PARENT, {}, 0, is_whole=True)
            return
        above = self.volumes[parent.vid]
        self.volumes[vid] = Volume(
            start=above.pasts[parent.lsn - 1] if parent.lsn else above.start,
            parent=parent,
            start_hash=above.pasts[parent.lsn - 1].stored.hash if parent.lsn else above.start_hash,
            start_state=self.state(parent),
            start_head_seq=min(above.head_seq(parent.lsn), _NO_CUT if parent.seq is None else parent.seq),
            is_whole=above.is_whole and parent.seq is None,
        )

    def _on_commit(self, key: Key, vid: Vid, stored: StoredCommit) -> None:
        volume, commit = self.volumes[vid], stored.commit
        if commit.lsn <= len(volume.pasts):
            is_same = volume.pasts[commit.lsn - 1].stored.hash == stored.hash
            self._hold(is_same or commit.lsn < volume.boundary, f"{key} is another commit than it was")
            return
        if commit.lsn < volume.boundary:
            return  # nobody takes it for one
        self._hold(commit.lsn == len(volume.pasts) + 1, f"{key} leaves a gap")
        last = volume.pasts[-1] if volume.pasts else volume.start
        before = volume.pasts[-1].stored.hash if volume.pasts else volume.start_hash
        self._hold(commit.parent_hash == before, f"{key} does not continue what is before it")
        self._hold(not volume.pasts or commit.epoch >= volume.pasts[-1].stored.commit.epoch, f"{key}: the epoch falls")
        collected_ms = last.collected_before_ms if last is not None and volume.pasts else 0
        for ref in commit.segments:
            is_there = self.ground.has(keys.data_key(vid, ref.sid)) and self.ground.has(keys.index_key(vid, ref.sid))
            self._hold(is_there, f"{key} names {ref.sid}, which is not there")
            self._hold(ref.sid.created_ms >= collected_ms, f"{key} names {ref.sid}, which may have been collected")
        state = volume.state(len(volume.pasts))
        if commit.kind is not CommitKind.CONFIG:
            state = self.intents[stored.hash](state)
        max_ts_ms = max(commit.at_ts_ms, last.max_ts_ms if last is not None else 0)
        collected_ms = max(collected_ms, commit.collected_before_ms or 0)
        volume.pasts.append(Past(stored, state, commit.bounds.head_seq, max_ts_ms, collected_ms))
        self.commits += 1

    # ------------------------------------------------------------ what must be

    def state(self, point: ForkPoint) -> State:
        whole = self.volumes[point.vid].state(point.lsn)
        return whole if point.seq is None else {seq: entry for seq, entry in whole.items() if seq <= point.seq}

    def at_time(self, vid: Vid, ms: int) -> State:
        """All that happened to `vid` by then, in its order."""
        shown: State = {}
        for past, before, cut in self._history(vid):
            commit = past.stored.commit
            if commit.kind is CommitKind.OFFLOAD:
                added = [entry for seq, entry in past.state.items() if seq not in before and seq <= cut]
                taken = [entry for entry in added if entry.ts_ms <= ms]
                if len(taken) < len(added):
                    return shown | {entry.seq: entry for entry in taken}
            elif commit.at_ts_ms > ms:
                break
            shown = {seq: entry for seq, entry in past.state.items() if seq <= cut}
        return shown

    def _history(self, vid: Vid) -> Iterator[tuple[Past, State, int]]:
        """Each commit that `vid` stands on, oldest first, what was before it, and the seq that it is cut at."""
        legs: list[tuple[Volume, int, int]] = []
        volume, lsn, cut = self.volumes[vid], len(self.volumes[vid].pasts), _NO_CUT
        while True:
            legs.append((volume, lsn, cut))
            if volume.parent is None:
                break
            parent = volume.parent
            cut = min(cut, _NO_CUT if parent.seq is None else parent.seq)
            volume, lsn = self.volumes[parent.vid], parent.lsn
        for volume, lsn, cut in reversed(legs):
            for number, past in enumerate(volume.pasts[:lsn]):
                yield past, volume.state(number), cut

    def is_promised(self, point: ForkPoint) -> bool:
        """By the window of its volume, while a name holds that."""
        since_ms = self._now_ms() - self.window_ms
        return point.vid in self._named(since_ms) and point.lsn in self.volumes[point.vid].promised(since_ms)

    def ack(self, vid: Vid, stored: StoredCommit) -> None:
        """J7."""
        lsn = stored.commit.lsn
        pasts = self.volumes[vid].pasts
        self._hold(
            lsn <= len(pasts) and pasts[lsn - 1].stored.hash == stored.hash, f"lsn {lsn} of {vid} is not what was acked"
        )
        self.acked.add((vid, lsn, stored.hash))

    def refused(self, vid: Vid, stored: StoredCommit, *, is_fenced: bool) -> None:
        """Its writer was told that another commit has its LSN, of a higher epoch or not, or that it came too late."""
        volume, lsn = self.volumes[vid], stored.commit.lsn
        is_ours = lsn <= len(volume.pasts) and volume.pasts[lsn - 1].stored.hash == stored.hash
        self._hold(not is_ours or lsn < volume.boundary, f"lsn {lsn} of {vid} is its writer's own, who was refused")
        if lsn <= len(volume.pasts) and lsn >= volume.boundary:
            is_higher = volume.pasts[lsn - 1].stored.commit.epoch > stored.commit.epoch
            self._hold(is_fenced == is_higher, f"who writes {vid} is fenced: {is_fenced}, and should be: {is_higher}")

    def check(self, sample: Callable[[range], range | list[int]] = lambda lsns: lsns) -> None:
        """J5, for what is promised now; of each volume's window only what `sample` draws."""
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
            if until_ms > now_ms:
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
            snapshot = volumes.snapshot(point.vid, point.lsn, point.seq)
            found = records_of(self.ground, snapshot, self._bodies)
        except CatalogError as error:
            raise Broken(f"{why}, and it is lost: {type(error).__name__}: {error}") from error
        self._hold(found == self.state(point), f"{why}, and reads as something else")
        if self.volumes[point.vid].is_whole and point.seq is None:
            self._hold(sum(entry.amount for entry in found.values()) == 0, f"{why}, and money came or went")

    def _hold(self, is_so: bool, what: str) -> None:
        if not is_so:
            raise Broken(what)
