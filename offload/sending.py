"""Who makes an object of a run of segments: a thread of this process, or a worker beside it (offload.worker)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from catalog import SegmentRef, Sid, Vid
from catalog.commit import Codec
from catalog.objects.base import ObjectStore
from offload.ledger_offloader import LedgerOffloader
from offload.segment_upload import FrameRun
from offload.settings import OffloadSettings
from seglog import Topic
from seglog.frames import Frames

__all__ = ["InThread", "Sender", "Shipment"]


@dataclass(frozen=True, slots=True)
class Shipment:
    """The hot records `first_seq` to `last_seq` of a topic, which become segment `sid` of volume `vid`."""

    topic: str
    vid: Vid
    sid: Sid
    first_seq: int
    last_seq: int
    codec: Codec
    settings: OffloadSettings


class Sender(Protocol):
    def send(
        self,
        shipment: Shipment,
        topic: Topic,
        *,
        on_upload_id: Callable[[str], None],
        on_bytes: Callable[[int], None],
    ) -> SegmentRef:
        """Returns when data and index object are whole. `on_upload_id` returns before the first part is sent.

        `on_bytes` hears how many bytes of frames were taken, every now and then; what it raises ends the sending.
        Raises what `LedgerOffloader.offload` raises.
        """
        ...

    def close(self) -> None: ...


class InThread:
    """In the thread of the caller."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def send(
        self,
        shipment: Shipment,
        topic: Topic,
        *,
        on_upload_id: Callable[[str], None],
        on_bytes: Callable[[int], None],
    ) -> SegmentRef:
        def counted() -> Iterator[Frames]:
            for frames in topic.frame_batches(shipment.first_seq, shipment.last_seq):
                on_bytes(frames.size_bytes)
                yield frames

        return ship(self._store, shipment, counted(), on_upload_id)

    def close(self) -> None:
        pass


def ship(
    store: ObjectStore, shipment: Shipment, batches: Iterator[Frames], on_upload_id: Callable[[str], None]
) -> SegmentRef:
    """What both do with the frames."""
    return LedgerOffloader(store, shipment.vid, shipment.settings).offload(
        FrameRun(shipment.topic, shipment.first_seq, shipment.last_seq, batches),
        shipment.sid,
        codec=shipment.codec,
        on_upload_id=on_upload_id,
    )
