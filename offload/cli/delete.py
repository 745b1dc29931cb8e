"""`seglog delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.session import emit, say, session_of

__all__ = ["delete"]


def delete(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="TOPIC or TOPIC@BRANCH.")],
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
    from offload.deletes import count_hot

    session = session_of(context)
    with session.log_and_maybe_archive() as (log, archive):
        if archive is None:
            taken, lsn = count_hot(log.existing(topic), before, tag), None
            log.topic(topic).delete(before=before, tag=tag)
        else:
            deleted = archive.delete(topic, before=before, tag=tag)
            taken, lsn = deleted.records, deleted.lsn
            if lsn is None and taken:
                say("the remote learns of it when the records before it are offloaded")
    emit(
        session,
        {"topic": topic, "deleted": taken, "lsn": lsn},
        f"deleted {taken:,} records of {topic}" + (f" (lsn {lsn})" if lsn else ""),
    )
