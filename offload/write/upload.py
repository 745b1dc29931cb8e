"""The upload of blocks to one object: one block by a single PUT, more blocks by a multipart upload, one part each.

If the answer to the completion is lost, a HEAD decides. The object must have the length that was sent, and the checksum
of the whole if the store keeps one. Otherwise the outcome is unknown.

Blocks arrive in order and leave in parallel. `add` returns when fewer than `concurrency` blocks are in flight. Then the
caller makes the next one, so memory holds at most `concurrency` blocks.

Source: PIP-17, "Writing to S3". Part numbers count from 1, as in Apache Pulsar's code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType

from catalog.errors import NoSuchObject, OutcomeUnknown
from catalog.format.keys import Key
from catalog.objects.base import ObjectStore, PartTag, checksum_of_parts
from catalog.objects.patience import carried

__all__ = ["BlockUpload"]


class BlockUpload:
    """A context manager: `add` each block but the last, then `finish` with that one.

    A sent block goes into `spare`, and the maker of later blocks may use it again.
    On an exception, the exit waits for the parts in flight.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: Key,
        metadata: Mapping[str, str],
        *,
        concurrency: int,
        on_upload_id: Callable[[str], None],
    ) -> None:
        """`on_upload_id` is called with the upload's id before the first part is sent, and must make the id durable."""
        self._store = store
        self._key = key
        self._metadata = metadata
        self._concurrency = concurrency
        self._on_upload_id = on_upload_id
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="seglog-upload")
        self._in_flight: set[Future[PartTag]] = set()
        self._tags: list[PartTag] = []
        self._upload_id: str | None = None
        self._length = 0
        self.spare: deque[bytearray] = deque()

    def __enter__(self) -> BlockUpload:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)

    def add(self, block: bytearray) -> None:
        """Send `block`, which is not the last one. Raises the error of an earlier part that failed."""
        if self._upload_id is None:
            self._upload_id = self._store.create_upload(self._key, self._metadata)
            self._on_upload_id(self._upload_id)
        self._send(self._upload_id, block)
        del block
        self._settle(down_to=self._concurrency - 1)

    def finish(self, block: bytearray) -> None:
        """Send the last block, and return when the object is whole. Raises `OutcomeUnknown` if no answer tells."""
        if self._upload_id is None:
            self._store.put(self._key, block, self._metadata)
            return
        self._send(self._upload_id, block)
        self._settle(down_to=0)
        parts = sorted(self._tags, key=lambda tag: tag.number)
        try:
            self._store.complete_upload(self._key, self._upload_id, parts)
        except (NoSuchObject, OutcomeUnknown) as error:
            # The answer was lost, or this was a retry of a completed upload. The object itself tells.
            if not self._is_whole(parts):
                raise OutcomeUnknown(self._key, f"the upload's completion: {error}") from error

    def _send(self, upload_id: str, block: bytearray) -> None:
        self._length += len(block)
        number = len(self._tags) + len(self._in_flight) + 1
        self._in_flight.add(self._pool.submit(carried(self._put), upload_id, number, block))

    def _put(self, upload_id: str, number: int, block: bytearray) -> PartTag:
        tag = self._store.put_part(self._key, upload_id, number, block)
        self.spare.append(block)
        return tag

    def _settle(self, *, down_to: int) -> None:
        while len(self._in_flight) > down_to:
            done, self._in_flight = wait(self._in_flight, return_when=FIRST_COMPLETED)
            self._tags.extend(future.result() for future in done)

    def _is_whole(self, parts: Sequence[PartTag]) -> bool:
        """Return whether the object under the key consists of these parts."""
        try:
            found = self._store.head(self._key)
        except NoSuchObject:
            return False
        whole = checksum_of_parts(parts)
        if whole is None or found.checksum is None or found.checksum.kind is not whole.checksum.kind:
            return found.size == self._length
        return found.size == self._length and found.checksum == whole.checksum
