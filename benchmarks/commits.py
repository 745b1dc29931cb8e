"""A topic in a store, made without a log: the caller encodes the objects, and this module publishes their commits."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.format import keys
from catalog.format.commit import NO_PARENT, Bounds, Codec, Commit, CommitKind, Deletions, SegmentRef
from catalog.format.encoding import encode_commit
from catalog.format.ids import Sid
from catalog.objects.object_store import ObjectStore
from catalog.refs.branch import Branches
from catalog.volume import Volumes
from offload.format.encoder import SegmentSummary
from offload.format.index import encode_index
from offload.write.segment_upload import segment_ref
from seglog.base import forms

__all__ = ["START_MS", "TopicCommits", "segment_of"]

START_MS = 1_760_000_000_000


class TopicCommits:
    """The main branch of one new topic. Its segments come in order, without gaps."""

    def __init__(self, store: ObjectStore, topic: str) -> None:
        self.store = store
        self.topic = topic
        self.volumes = Volumes(store)
        self.vid = Branches(self.volumes).create(topic, "main", None, now_ms=START_MS)
        self.lsn = 0
        self._parent = NO_PARENT

    def put_index(self, summary: SegmentSummary) -> SegmentRef:
        """Put the index object of a data object. Return what a commit says about both."""
        index = encode_index(summary, topic=self.topic, created_at_ms=START_MS)
        ref = segment_ref(Sid.new(START_MS), summary, index)
        self.store.put(keys.index_key(self.vid, ref.sid), index.body, {})
        return ref

    def publish(self, refs: Sequence[SegmentRef]) -> None:
        """Publish one commit with these segments, the next ones of the topic."""
        last = refs[-1]
        self.put(CommitKind.OFFLOAD, Bounds(1, last.last_seq), START_MS, refs, at_ts_ms=last.max_ts_ms)

    def put(
        self,
        kind: CommitKind,
        bounds: Bounds,
        now_ms: int,
        segments: Sequence[SegmentRef] = (),
        *,
        at_ts_ms: int | None = None,
        removed_sids: Sequence[Sid] = (),
        deletions: Deletions | None = None,
    ) -> None:
        """Publish the next commit."""
        self.lsn += 1
        commit = Commit(
            vid=self.vid,
            lsn=self.lsn,
            kind=kind,
            bounds=bounds,
            parent_hash=self._parent,
            nonce=self.lsn.to_bytes(16, "big"),
            created_at_ms=now_ms,
            writer_id="benchmark",
            epoch=1,
            at_seq=bounds.head_seq,
            at_ts_ms=now_ms if at_ts_ms is None else at_ts_ms,
            segments=tuple(segments),
            removed_sids=tuple(removed_sids),
            deletions=deletions or Deletions(),
            form=forms.NEWEST,
        )
        body, self._parent = encode_commit(commit)
        self.volumes.publish(self.vid, self.lsn, body)


def segment_of(sid: Sid, first_seq: int, last_seq: int, now_ms: int) -> SegmentRef:
    """Return what a commit says about a segment of 1 MiB, whose objects nobody reads."""
    return SegmentRef(
        sid,
        first_seq,
        last_seq,
        now_ms,
        now_ms,
        1 << 20,
        bytes(32),
        4096,
        512,
        bytes(32),
        Codec.ZSTD,
        4 << 20,
        last_seq - first_seq + 1,
    )
