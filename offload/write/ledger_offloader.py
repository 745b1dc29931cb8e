"""The interface of PIP-17 under its own names: offload a run of records, read it back, delete it.

    PIP-17                                  here
    offload(ledger, uid, extraMetadata)     `offload(run, sid, extra)`
    readOffloaded(ledgerId, uid)            `read_offloaded(segment)`
    deleteOffloaded(ledgerId, uid)          `delete_offloaded(sid)`

I1  The caller may repeat each call after any error or crash.
    If objects of a sid exist already, `offload` writes the same keys again: use a sid once (offload.write.attempt, A1).
I2  The caller decides which records are offloaded, and publishes them by a commit. This module does neither.
I3  The items of `extra` go into the user metadata of both objects. They never replace items of offload.format.labels.

The futures of PIP-17 are left out: a caller that wants one runs the call in a thread.
Source: PIP-17, "Interface".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from catalog import SegmentRef, SegmentView, Sid, Vid
from catalog.errors import AccessDenied
from catalog.format import keys
from catalog.format.commit import Codec
from catalog.objects.base import ObjectStore
from offload.read.cold_reader import ColdReader
from offload.settings import OffloadSettings
from offload.write.segment_upload import FrameRun, upload_segment
from seglog import Record

__all__ = ["LedgerOffloader"]

_log = logging.getLogger("offload.write.ledger_offloader")


class LedgerOffloader:
    """The offloader of one volume. `settings` apply to all its later offloads."""

    def __init__(self, store: ObjectStore, vid: Vid, settings: OffloadSettings) -> None:
        self._store = store
        self._vid = vid
        self._settings = settings

    def offload(
        self,
        run: FrameRun,
        sid: Sid,
        extra: Mapping[str, str] | None = None,
        *,
        codec: Codec,
        on_upload_id: Callable[[str], None] = lambda _: None,
    ) -> SegmentRef:
        """Upload a run, and return when data and index object are whole. Calls `on_upload_id` before it sends a part.

        Raises the errors of the store and of the run, `EntryTooLarge` and `FrameMismatch`. After an error,
        `delete_offloaded` removes the remains.
        """
        return upload_segment(
            self._store,
            keys.data_key(self._vid, sid),
            keys.index_key(self._vid, sid),
            run,
            sid,
            extra=extra or {},
            codec=codec,
            settings=self._settings,
            on_upload_id=on_upload_id,
        )

    def read_offloaded(
        self, reader: ColdReader, segment: SegmentRef, first: int | None = None, last: int | None = None
    ) -> Iterator[Record]:
        """Yield the verified records of a segment, whatever later commits deleted. `reader` is of the same store."""
        view = SegmentView(segment, self._vid, 0, segment.first_seq, segment.last_seq)
        first = segment.first_seq if first is None else first
        return reader.segment_records(view, first, segment.last_seq if last is None else last)

    def delete_offloaded(self, sid: Sid, upload_id: str | None = None) -> None:
        """Delete both objects, and abort the unfinished upload; without `upload_id`, all that the store knows."""
        data, index = keys.data_key(self._vid, sid), keys.index_key(self._vid, sid)
        steps: tuple[Callable[[], None], ...] = (
            lambda: self._abort_uploads(data, upload_id),
            lambda: self._store.delete(data),
            lambda: self._store.delete(index),
        )
        for step in steps:
            try:
                step()
            except AccessDenied as error:
                # A writer's policy may deny both listing uploads and deleting. Then the bucket's maintainer does it.
                _log.warning("left something of segment %s behind: %s", sid, error)

    def _abort_uploads(self, data: keys.Key, upload_id: str | None) -> None:
        known = [upload_id] if upload_id else None
        for found in known or [found for key, found in self._store.list_uploads(data) if key == data]:
            self._store.abort_upload(data, found)
