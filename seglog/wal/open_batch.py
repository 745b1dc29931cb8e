"""The unit that begins with a BATCH or a KEY frame, as long as a reader of the WAL has not all of its records.

Recovery and the check of WAL files (`seglog verify`) both count the Append frames behind such a frame (BATCHFRAME-1).
If the frames end before the unit does, `begin` is the place where a torn write begins.
"""

from __future__ import annotations

from dataclasses import dataclass

from seglog.errors import FileCorrupt, InvalidFrame
from seglog.files.open_file import OpenFile
from seglog.format.arrays import NDArray, np
from seglog.format.batch_frame import UNIT_TYPES, read_unit
from seglog.format.frame import MIN_FRAME_BYTES, Buffer, FrameType, Header, data_of
from seglog.values.append_key import Unit

__all__ = ["OpenBatch", "open_batch_after"]

_APPEND = int(FrameType.APPEND)


@dataclass(slots=True)
class OpenBatch:
    """A unit of which `left` records are not read yet. `begin` is the offset of its first frame in the file."""

    begin: int
    topic_id: int
    unit: Unit
    left: int

    def has(self, header: Header) -> bool:
        """Return whether a frame with this header is a record of the batch's topic."""
        return header.type == _APPEND and header.topic_id == self.topic_id

    def has_all(self, headers: NDArray[np.void]) -> bool:
        """Return whether the next frames are records of the batch's topic, as far as the batch goes."""
        own = headers[: self.left]
        return bool(((own["type"] == _APPEND) & (own["topic_id"] == self.topic_id)).all())

    def check_not_cut(self, file: OpenFile, end: int, size: int) -> None:
        """Raise `FileCorrupt` if the file has no room for the records that are left from the offset `end` on.

        The size was durable before the batch was written (WAL-8). So no crash did that: somebody cut the file.
        """
        if self.left * MIN_FRAME_BYTES > size - end:
            raise FileCorrupt(file.path, end, f"the file was cut: it ends at {size}, within the batch at {self.begin}")


def open_batch_after(
    batch: OpenBatch | None, offset: int, header: Header, buffer: Buffer, position: int
) -> OpenBatch | None:
    """Return the batch that is open behind this frame. `batch` is open before it.

    A frame that has no place there closes the batch, because recovery reports it.
    """
    if header.type in UNIT_TYPES:
        try:
            unit = read_unit(header, data_of(buffer, position, header))
        except InvalidFrame:
            return None
        return OpenBatch(offset, header.topic_id, unit, unit.records)
    if batch is None or not batch.has(header):
        return None
    batch.left -= 1
    return batch if batch.left else None
