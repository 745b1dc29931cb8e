"""The command `seglog delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.session import TopicName, counted, emit, say, session_of

__all__ = ["delete"]


def delete(
    context: typer.Context,
    topic: TopicName,
    before: Annotated[int | None, typer.Option(help="Delete the records below this seq.", show_default=False)] = None,
    tag: Annotated[
        str | None,
        typer.Option(help="Delete the records with this tag; a `*` at its end matches any rest.", show_default=False),
    ] = None,
) -> None:
    """Delete records, by seq, by tag, or by both together. Readers no longer see them at once.

    With a remote the delete is a commit of its own, and `seglog restore TOPIC --to head~1 --as NAME` brings the state
    before it back as a branch. Without a remote there is no way back.
    """
    if before is None and tag is None:
        raise typer.BadParameter("say which records: --before SEQ, --tag TAG, or both")
    from offload.read.deletes import count_hot

    session = session_of(context)
    with session.log_and_maybe_archive() as (log, archive):
        if archive is None:
            taken: int | None = count_hot(log.existing(topic), before, tag)
            lsn: int | None = None
            log.topic(topic).delete(before=before, tag=tag)
        else:
            deleted = archive.delete(topic, before=before, tag=tag)
            taken, lsn = deleted.records, deleted.lsn
            if deleted.waits_for:
                say(f"deleted here; the remote learns of it later, it waits for: {deleted.waits_for}")
    count = "records" if taken is None else counted(taken)
    emit(
        session,
        {"topic": topic, "deleted": taken, "lsn": lsn},
        f"deleted {count} of {topic}" + (f" (lsn {lsn})" if lsn else ""),
    )
