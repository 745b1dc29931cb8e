"""The command `seglog compact`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.session import emit, format_bytes, session_of

__all__ = ["compact"]


def compact(
    context: typer.Context,
    topic: Annotated[str | None, typer.Argument(help="TOPIC or TOPIC@BRANCH.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Every topic of this data directory.")] = False,
    erase: Annotated[bool, typer.Option("--erase", help="Instead, rid objects of deleted records.")] = False,
) -> None:
    """Merge the small objects that frequent offloads leave in the remote, as a commit; no past state changes.

    With --erase: each object that holds deleted records is put anew without them. The old one goes by GC once the
    window has passed; `log` tells until when.

    What counts as small, and how many make a merge, the settings merge_below_bytes and merge_count say.
    """
    if (topic is None) == (not every):
        raise typer.BadParameter("name a TOPIC, or give --all")
    session = session_of(context)
    with session.archive() as (log, archive):
        for name in log.topics() if topic is None else [topic]:
            published = archive.erase(name) if erase else archive.compact(name)
            for each in published:
                segment = each.segment
                assert segment is not None  # noqa: S101 - a merge has one
                emit(
                    session,
                    {
                        "topic": name,
                        "lsn": each.lsn,
                        "first_seq": segment.first_seq,
                        "last_seq": segment.last_seq,
                        "stored_bytes": segment.data_length,
                    },
                    f"{name}: seq {segment.first_seq}-{segment.last_seq} in one object of "
                    f"{format_bytes(segment.data_length)} (lsn {each.lsn})",
                )
            if not published and not session.as_json:
                emit(session, {}, f"{name}: nothing to {'erase' if erase else 'merge'}")
