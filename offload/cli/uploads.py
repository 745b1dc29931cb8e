"""The command `seglog uploads`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.session import emit, session_of
from offload.cli.units import parse_duration_ms

__all__ = ["uploads"]


def uploads(
    context: typer.Context,
    abort: Annotated[bool, typer.Option("--abort", help="Abort them: their parts are freed.")] = False,
    older_than: Annotated[str, typer.Option(help="Only those that began so long ago, such as 24h.")] = "24h",
) -> None:
    """List the multipart uploads in the remote that no attempt here goes on with: crashed ones, which cost money.

    Another data directory may be uploading under the same prefix right now, hence the age.
    """
    session = session_of(context)
    with session.archive(read_only=not abort) as (_, archive):
        found = archive.upkeep.orphan_uploads(parse_duration_ms(older_than) or 0)
        for upload in found:
            if abort:
                archive.upkeep.abort(upload)
            hours = upload.age_ms / 3_600_000
            emit(
                session,
                {"key": upload.key, "upload_id": upload.upload_id, "age_ms": upload.age_ms, "aborted": abort},
                f"{'aborted' if abort else 'orphan '}  {upload.key}  {hours:.1f} h old",
            )
        if not session.as_json and not found:
            emit(session, {}, "none")
