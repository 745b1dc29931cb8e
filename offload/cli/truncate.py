"""The command `seglog truncate`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.session import TopicName, counted, emit, say, session_of

__all__ = ["truncate"]


def truncate(
    context: typer.Context,
    topic: TopicName,
    start: Annotated[int, typer.Option("--from", min=1, help="The first seq to remove.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
) -> None:
    """Remove the records from a seq on. Later appends use their seqs again.

    If the remote has any of them, all of them are offloaded first, the truncation is a commit of its own, and
    `seglog restore TOPIC --to head~1 --as NAME` brings the state before it back as a branch. For records that are only
    here there is no way back. Example: seglog truncate orders --from 4711 --yes
    """
    if not yes:
        raise typer.BadParameter(f"this removes the records of {topic} from {start} on; say --yes to do it")
    session = session_of(context)
    lsn: int | None = None
    with session.log_and_maybe_archive() as (log, archive):
        if archive is None:
            handle = log.get_topic(topic)
            removed = max(0, handle.head_seq - start + 1)
            handle.truncate(start)
        else:
            result = archive.truncate(topic, start)
            handle, removed, lsn = log.topic(topic), result.records, result.lsn
            if result.waits_for:
                say(f"truncated here; the remote learns of it later, it waits for: {result.waits_for}")
        fields = {"topic": topic, "removed": removed, "head_seq": handle.head_seq, "epoch": handle.epoch, "lsn": lsn}
    ends = f"which ends with seq {fields['head_seq']} now" + (f" (lsn {lsn})" if lsn else "")
    emit(session, fields, f"removed {counted(removed)} of {topic}, {ends}")
