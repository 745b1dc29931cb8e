"""Archives made without a log: the encoder makes the objects, the catalog the commits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from pyroaring import BitMap

from catalog.format import keys
from catalog.format.commit import Bounds, Codec, Commit, CommitKind, Deletions, ForkPoint, SegmentRef
from catalog.format.encoding import encode_commit
from catalog.format.ids import Sid, Vid
from catalog.objects.object_store import ObjectStore
from catalog.refs.branch import Branches
from catalog.volume import Volumes
from offload.wiring import open_store
from offload.write.segment_upload import segment_ref
from tests.offload.samples import Sample, encode_object, frames_of_samples

NOW_MS = 1_700_000_000_000
TAGS = (None, "", "eu", "eu-west", "gr\u00fc\u00df", "us")


class TopicArchive:
    """One branch of a topic. Its methods commit segments and deletes."""

    def __init__(
        self, store: str | ObjectStore, topic: str = "orders", branch: str = "main", parent: ForkPoint | None = None
    ) -> None:
        self.store = open_store(store) if isinstance(store, str) else store
        self.volumes = Volumes(self.store)
        self.vid: Vid = Branches(self.volumes).create(topic, branch, parent, now_ms=NOW_MS)
        self._nonces = itertools.count(1)

    def add(
        self,
        samples: Sequence[Sample],
        codec: Codec = Codec.ZSTD,
        block_size: int = 1 << 16,
        chunk_bytes: int = 1 << 10,
        first_ts_ms: int | None = None,
    ) -> SegmentRef:
        """Commit one segment with the next records."""
        ref = self._put(samples, self.head_seq + 1, codec, block_size, chunk_bytes, first_ts_ms)
        self._commit(CommitKind.OFFLOAD, ref.last_seq, segments=(ref,))
        return ref

    def add_many(self, count: int) -> None:
        """Commit so many segments of two records in one commit."""
        first = self.head_seq + 1
        samples = [Sample(b"a"), Sample(b"b")]
        refs = tuple(
            self._put(samples, seq, Codec.NONE, 1 << 16, 1 << 10) for seq in range(first, first + 2 * count, 2)
        )
        self._commit(CommitKind.OFFLOAD, refs[-1].last_seq, segments=refs)

    def _put(
        self,
        samples: Sequence[Sample],
        first_seq: int,
        codec: Codec,
        block_size: int,
        chunk_bytes: int,
        first_ts_ms: int | None = None,
    ) -> SegmentRef:
        frames = frames_of_samples(samples, first_seq=first_seq, first_ts_ms=first_ts_ms or NOW_MS + first_seq)
        made = encode_object(frames, codec, block_size=block_size, chunk_bytes=chunk_bytes)
        ref = segment_ref(Sid.new(NOW_MS), made.summary, made.index)
        self.store.put(keys.data_key(self.vid, ref.sid), made.data, {})
        self.store.put(keys.index_key(self.vid, ref.sid), made.index.body, {})
        return ref

    def delete(self, ref: SegmentRef | None = None, entry_ids: Sequence[int] = (), before_seq: int = 0) -> None:
        bitmaps = {ref.sid: bytes(BitMap(entry_ids).serialize())} if ref else {}
        self._commit(CommitKind.DELETE, self.head_seq, deletions=Deletions(before_seq, bitmaps))

    def evict(self, below: int) -> None:
        """Commit that retention took the records below a seq."""
        bounds = Bounds(first_seq=below, head_seq=self.head_seq, evict_floor=below)
        self._commit(CommitKind.EVICT, bounds.head_seq, deletions=Deletions(before_seq=below), bounds=bounds)

    def truncate(self, seq: int) -> None:
        """Commit that the records from a seq on were removed."""
        bounds = Bounds(first_seq=1, head_seq=seq - 1)
        self._commit(CommitKind.TRUNCATE, self.head_seq, bounds=bounds, truncate_from=seq)

    @property
    def lsn(self) -> int:
        return self.volumes.newest_lsn(self.vid)

    @property
    def head_seq(self) -> int:
        return self.volumes.snapshot(self.vid).bounds.head_seq

    def _commit(
        self,
        kind: CommitKind,
        head_seq: int,
        segments: tuple[SegmentRef, ...] = (),
        deletions: Deletions | None = None,
        bounds: Bounds | None = None,
        truncate_from: int | None = None,
    ) -> None:
        base = self.volumes.snapshot(self.vid)
        commit = Commit(
            vid=self.vid,
            lsn=base.lsn + 1,
            kind=kind,
            bounds=bounds or replace(base.bounds, head_seq=head_seq),
            parent_hash=base.head_hash,
            nonce=next(self._nonces).to_bytes(16, "big"),
            created_at_ms=NOW_MS,
            writer_id="test",
            epoch=1,
            at_seq=head_seq,
            at_ts_ms=NOW_MS + head_seq,
            segments=segments,
            deletions=deletions or Deletions(),
            truncate_from=truncate_from,
        )
        self.volumes.publish(self.vid, commit.lsn, encode_commit(commit)[0])


def archive_of_many_shapes(url: str) -> None:
    """Fill a remote with many shapes: codecs, deleted and erased records, a branch, topics, an empty one."""
    orders = TopicArchive(url)
    first = orders.add(
        [Sample(b"x" * (n % 90), TAGS[n % 6], "n1" if n % 4 == 0 else None, deleted=n % 7 == 3) for n in range(120)],
        Codec.NONE,
        block_size=4096,
    )
    orders.add([Sample(b"y" * n, "eu", "") for n in range(60)])
    half = TopicArchive(url, branch="half", parent=ForkPoint(orders.vid, 2, 150))
    half.add([Sample(b"half %d" % n, TAGS[n % 6]) for n in range(30)])
    orders.add([Sample(b"\x00\xff" * 40, TAGS[n % 2]) for n in range(50)], chunk_bytes=400)
    orders.delete(first, [5, *range(20, 60)])
    orders.delete(before_seq=4)
    TopicArchive(url, "events").add([Sample(b"event", "us")] * 9)
    TopicArchive(url, "empty")
    TopicArchive(url, "one").add([Sample(b"", "")])
