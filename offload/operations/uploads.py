"""Multipart uploads that nothing continues: `seglog uploads`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from offload.operations.directory import Directory
from offload.operations.parameters import About
from offload.operations.units import parse_span_ms

__all__ = ["UploadListed", "uploads"]


@dataclass(frozen=True, slots=True)
class UploadListed:
    key: str
    upload_id: str
    age_ms: int
    aborted: bool


def uploads(
    place: Directory,
    abort: Annotated[bool, About("Abort them: their parts are freed.")] = False,
    older_than: Annotated[str, About("Only those that began so long ago, such as 24h.")] = "24h",
) -> Iterator[UploadListed]:
    """List the multipart uploads in the remote that no attempt here continues. Crashes leave them, and they cost money.

    Another data directory may be uploading under the same prefix right now, so only old uploads count.
    """
    age_ms = parse_span_ms("--older-than", older_than)
    upkeep = place.archive.upkeep
    for upload in upkeep.orphan_uploads(age_ms):
        if abort:
            upkeep.abort(upload)
        yield UploadListed(upload.key, upload.upload_id, upload.age_ms, abort)
