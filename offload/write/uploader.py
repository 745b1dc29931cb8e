"""The port to the maker of an offload's objects. `attach` takes one, and needs no code that uploads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from catalog import SegmentRef
from seglog import Topic

if TYPE_CHECKING:
    from offload.write.segment_upload import UploadJob


class Uploader(Protocol):
    def upload(
        self, job: UploadJob, topic: Topic, *, on_upload_id: Callable[[str], None], on_bytes: Callable[[int], None]
    ) -> SegmentRef:
        """Upload, and return when both objects are whole. `on_upload_id` returns before the first part is sent.

        Calls `on_bytes` now and then with the bytes of frames taken since. An error that `on_bytes` raises ends the
        upload. Raises the errors of `upload_segment`.
        """

    def close(self) -> None: ...
