"""`seglog truncate`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.session import TopicName, counted, emit, session_of

__all__ = ["truncate"]


def truncate(
    context: typer.Context,
    topic: TopicName,
    start: Annotated[int, typer.Option("--from", min=1, help="The first seq to remove.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it: there is no way back.")] = False,
) -> None:
    """Remove the records from a seq on. Later appends use their seqs again.

    Refused below what is on this disk, and with a remote for what is sealed: it may be there. `seglog restore` makes a
    branch without those records instead. Example: seglog truncate orders --from 4711 --yes
    """
    if not yes:
        raise typer.BadParameter(f"this removes the records of {topic} from {start} on for good; say --yes to do it")
    session = session_of(context)
    with session.log_and_maybe_archive() as (log, _):
        handle = log.existing(topic)
        removed = max(0, handle.head_seq - start + 1)
        handle.truncate(start)
        fields = {"topic": topic, "removed": removed, "head_seq": handle.head_seq, "epoch": handle.epoch}
    emit(session, fields, f"removed {counted(removed)} of {topic}, which ends with seq {fields['head_seq']} now")
