"""Multipart uploads that nothing continues: `seglog uploads`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from offload.commands.parameters import About
from offload.commands.units import parse_duration_ms

if TYPE_CHECKING:
    from offload.archive import Archive

__all__ = ["UploadListed", "check", "uploads"]


@dataclass(frozen=True, slots=True)
class UploadListed:
    key: str
    upload_id: str
    age_ms: int
    aborted: bool


def check(*, older_than: str, **_: object) -> None:
    parse_duration_ms(older_than)


def uploads(
    archive: Archive,
    abort: Annotated[bool, About("Abort them: their parts are freed.")] = False,
    older_than: Annotated[str, About("Only those that began so long ago, such as 24h.")] = "24h",
) -> Iterator[UploadListed]:
    """List the multipart uploads in the remote that no attempt here continues. Crashes leave them, and they cost money.

    Another data directory may be uploading under the same prefix right now, so only old uploads count.
    """
    for upload in archive.upkeep.orphan_uploads(parse_duration_ms(older_than) or 0):
        if abort:
            archive.upkeep.abort(upload)
        yield UploadListed(upload.key, upload.upload_id, upload.age_ms, abort)
