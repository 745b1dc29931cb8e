"""The values of a commit. `catalog.format.encoding` turns them into objects and back.

COMMIT-1  LSNs of a volume are dense from 1. Each LSN has at most one commit.
COMMIT-2  A commit's hash covers its parent's hash, so a history is tamper-evident to its first commit.
COMMIT-3  The remote history of a topic has the topic's own order. The writer commits a delete only after every record
    that was appended before the delete. So any prefix of the history is a state that the topic once had.
COMMIT-4  The writer commits a delete before the next offload. So at most one offload lies between a delete and the
    records that it could reach: the offload that took records from after the delete along.
COMMIT-5  The epoch never falls from one commit to the next. The first writer has epoch 1. A writer that takes a volume
    over makes a commit of a higher epoch. A writer that finds a commit of a higher epoch than its own has to stop.

COMMIT-6  The form never falls from one commit to the next. So a reader of the newest commits, or of a checkpoint among
    them, knows the form of the volume (seglog.base.forms).

Source: Graft RFC 0001 (Commit, Snapshot, SegmentRef); pages there are records here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field

from catalog.format.ids import Sid, Vid
from seglog.base.dataclasses import dataclass

NO_PARENT = bytes(32)


class CommitKind(enum.IntEnum):
    OFFLOAD = 1
    DELETE = 2
    EVICT = 3
    TRUNCATE = 4
    COMPACT = 5
    CONFIG = 6
    RESTORE = 7


class Codec(enum.IntEnum):
    """The encoding of the entries in a data object. The names are those of the configuration."""

    NONE = 1
    ZSTD = 2


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a log at a commit. Seqs count from 1. `head_seq` is 0 until the first append."""

    first_seq: int
    head_seq: int
    evict_floor: int = 0


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """One offloaded segment: a data object and an index object. Lengths in bytes, times in ms since the epoch.

    `live_records` counts the records that were not deleted when the segment was made.
    """

    sid: Sid
    first_seq: int
    last_seq: int
    min_ts_ms: int
    max_ts_ms: int
    data_length: int
    data_hash: bytes
    index_head_length: int
    index_trailer_length: int
    index_head_hash: bytes
    codec: Codec
    frame_bytes: int
    live_records: int

    @property
    def index_length(self) -> int:
        return self.index_head_length + self.index_trailer_length


@dataclass(frozen=True, slots=True)
class Deletions:
    """The deleted seqs: all below `before_seq` (0: none by that), and for each segment the seqs in a Roaring bitmap.

    `bitmaps` maps a sid to the portable serialization of a Roaring bitmap of `seq - first_seq`.
    """

    before_seq: int = 0
    bitmaps: Mapping[Sid, bytes] = field(default_factory=dict[Sid, bytes])


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """A volume at an LSN. With `seq`, the point is cut inside the commit: records above `seq` are not part of it."""

    vid: Vid
    lsn: int
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class LoadMark:
    """The mark of a load. A load is a job that appends records to a volume without a log.

    A commit of an undo or a promotion has it as well, if no log wrote the volume before. `key` is the job's idempotency
    key, empty if it has none. `salt` is 16 random bytes. The commit's nonce is made of both
    (`catalog.format.encoding.load_nonce`).
    """

    key: str
    salt: bytes


@dataclass(frozen=True, slots=True)
class LoadedKey:
    """The idempotency key of a load that a volume has, and the head seq after that load."""

    key: str
    last_seq: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One change of one volume."""

    vid: Vid
    lsn: int
    kind: CommitKind
    bounds: Bounds
    parent_hash: bytes
    nonce: bytes
    created_at_ms: int
    writer_id: str
    epoch: int
    #: The topic's head and time when the operation happened.
    at_seq: int
    at_ts_ms: int
    message: str = ""
    segments: tuple[SegmentRef, ...] = ()
    removed_sids: tuple[Sid, ...] = ()
    deletions: Deletions = Deletions()
    truncate_from: int | None = None
    #: Of kind config: the topic's configuration from this commit on, as JSON; empty means no change.
    config: str = ""
    #: Of kind config: after this commit, no segment with an older id may be added (catalog.gc.collector).
    collected_before_ms: int | None = None
    #: Of a commit that a load made.
    load: LoadMark | None = None
    #: Of kind restore.
    restored: Restored | None = None
    #: The form of the volume from this commit on: the version of the envelope.
    form: int = 1

    @property
    def restored_views(self) -> tuple[SegmentView, ...]:
        """Return the views that the commit shows again. Other commits added their segments."""
        return self.restored.views if self.restored is not None else ()


@dataclass(frozen=True, slots=True)
class SegmentView:
    """The part of a segment that a volume shows: seqs `first` to `last`, without those in `deleted`.

    `vid` is the volume that holds the segment's objects. For a fork, this may be a parent. `lsn` names the commit in
    that volume that added the segment. `deleted` is the portable serialization of a Roaring bitmap of `seq -
    ref.first_seq`, over the whole segment; None if no seq is deleted so.
    """

    ref: SegmentRef
    vid: Vid
    lsn: int
    first: int
    last: int
    deleted: bytes | None = None

    @property
    def is_whole(self) -> bool:
        """Tell whether the view spans all seqs of the segment, whatever `deleted` says."""
        return (self.first, self.last) == (self.ref.first_seq, self.ref.last_seq)


@dataclass(frozen=True, slots=True)
class Restored:
    """The way back of one delete, eviction or truncation: the commit at `undone`, in this volume or in a parent.

    `views` show the records again that the commit took away. Each view replaces all others in its range, and says which
    seqs of its whole segment are deleted from now on. `before_seq` becomes that of the volume.
    """

    undone: ForkPoint
    before_seq: int
    views: tuple[SegmentView, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state that a volume shows at a commit, stored with the commit. It is not part of the commit, nor of its hash.

    `views` is the encoded list of `SegmentView`, None if that list is an object of its own. `views_hash` is the BLAKE3
    hash of the list, `views_length` its bytes. `max_seq` is the highest seq that the topic ever had up to the commit,
    `max_ts_ms` the latest `at_ts_ms`. The others are as in `catalog.snapshot.Snapshot`.
    """

    made_at_ms: int
    views: bytes | None
    views_hash: bytes
    views_length: int
    before_seq: int
    max_seq: int
    max_ts_ms: int
    config: str
    collected_before_ms: int
    put_out_ms: int
    load_epoch: int = 0
    loaded: tuple[LoadedKey, ...] = ()
