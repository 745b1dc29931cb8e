"""The command `seglog evict`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from offload.cli.session import TopicName, counted, emit, say, session_of
from offload.cli.units import parse_duration_ms

__all__ = ["evict"]


def evict(
    context: typer.Context,
    topic: TopicName,
    before: Annotated[int | None, typer.Option(min=1, help="Evict what is below this seq.", show_default=False)] = None,
    older: Annotated[
        str | None, typer.Option("--older-than", help="Evict what is older, such as 90d.", show_default=False)
    ] = None,
) -> None:
    """Take the oldest records of a topic away, in the remote too: readers that come from below are told of it.

    Retention (`seglog topic set --ttl`, caps) frees the local disk only. What is past the ttl is not shown, but the
    remote keeps it, and `read --at` shows it. This lets go of it, by a commit of its own: `seglog restore TOPIC --to
    head~1 --as NAME` brings the state before it back within the window, and after that `seglog gc` takes the objects.
    Example: seglog evict access --older-than 365d
    """
    if (before is None) == (older is None):
        raise typer.BadParameter("say up to where: --before SEQ or --older-than AGE")
    age_ms = None if older is None else parse_duration_ms(older)
    if older is not None and age_ms is None:
        raise typer.BadParameter("--older-than takes a duration such as 12h or 90d")
    from offload.read.deletes import count_hot

    session = session_of(context)
    with session.log_and_maybe_archive() as (log, archive):
        handle = log.existing(topic) if archive is None else log.existing(archive.writable(topic).name)
        if before is None:
            if archive is not None:
                archive.check_clock(f"nothing of {topic} was evicted")
            before = handle.seq_at(max(0, int(time.time() * 1000) - (age_ms or 0)))
        if archive is None:
            taken: int | None = count_hot(handle, before, None)
            lsn: int | None = None
            handle.evict(before)
        else:
            done = archive.evict(topic, before)
            taken, lsn = done.records, done.lsn
            if done.waits_for:
                say(f"evicted here; the remote learns of it later, it waits for: {done.waits_for}")
        fields = {"topic": topic, "evicted": taken, "earliest_seq": handle.earliest_seq, "lsn": lsn}
    count = "records" if taken is None else counted(taken)
    told = f"evicted {count} of {topic}, which begins with seq {fields['earliest_seq']} now"
    emit(session, fields, told + (f" (lsn {lsn})" if lsn else ""))
