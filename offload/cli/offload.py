"""The commands `seglog offload`, `pause`, `resume` and `retry`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.archive import Archive
from offload.cli.progress import progress
from offload.cli.session import Session, TopicName, counted, emit, format_bytes, say, session_of
from seglog import Topic

__all__ = ["offload", "pause", "resume", "retry"]


def offload(
    context: typer.Context,
    topic: Annotated[str | None, typer.Argument(help="TOPIC or TOPIC@BRANCH.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Every topic of this data directory.")] = False,
    up_to: Annotated[
        int | None, typer.Option(help="Only segments that end at this seq or before.", show_default=False)
    ] = None,
    drop_hot: Annotated[
        bool, typer.Option(help="Delete the hot copy now, after reading the remote one back, instead of after the lag.")
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Only say what would be sent.")] = False,
) -> None:
    """Send sealed segments to the remote, as one commit each run, and the deletes that came after them.

    Repeat it after any failure: it goes on where it stopped. The unsealed tail stays; `seglog seal` makes it ready.
    """
    if (topic is None) == (not every):
        raise typer.BadParameter("name a TOPIC, or give --all")
    session = session_of(context)
    with session.archive(read_only=dry_run) as (log, archive):
        names = [topic] if topic is not None else [name for name in log.topics() if _is_written(log.topic(name))]
        failed: Exception | None = None
        for name in names:
            try:
                _offload(session, archive, name, up_to=up_to, drop_hot=drop_hot, dry_run=dry_run)
            except Exception as error:
                if topic is not None:
                    raise
                # An error of one topic does not stop the others. The last error gives the command its exit code.
                say(f"{name}: {error}")
                failed = error
        if failed is not None:
            raise failed


def pause(context: typer.Context, topic: TopicName) -> None:
    """Let the daemon leave a topic's offload alone, until `resume`. Offload by hand works as before."""
    _pause(context, topic, paused=True)


def resume(context: typer.Context, topic: TopicName) -> None:
    """Let the daemon offload a paused topic again."""
    _pause(context, topic, paused=False)


def retry(context: typer.Context, topic: TopicName) -> None:
    """Let the daemon try a topic whose offload failed again now, instead of after its pause."""
    session = session_of(context)
    with session.archive() as (log, _):
        name = log.get_topic(topic).name
        session.retry(name)
    emit(session, {"topic": name, "retry": True}, f"{name} is tried again")


def _pause(context: typer.Context, topic: str, *, paused: bool) -> None:
    session = session_of(context)
    with session.archive() as (_, archive):
        archive.pause(topic, paused=paused)
    emit(session, {"topic": topic, "is_paused": paused}, f"{topic} is {'paused' if paused else 'resumed'}")


def _is_written(topic: Topic) -> bool:
    return topic.config.durability != "ephemeral"


def _offload(
    session: Session, archive: Archive, name: str, *, up_to: int | None, drop_hot: bool, dry_run: bool
) -> None:
    waiting_bytes = archive.waiting_bytes(name, up_to)
    if dry_run:
        emit(
            session,
            {"topic": name, "would_send_bytes": waiting_bytes},
            f"{name}: {format_bytes(waiting_bytes)} of sealed segments would be sent to {archive.url}",
        )
        return
    with progress(f"offload {name}", waiting_bytes) as advance:
        result = archive.offload(name, up_to=up_to, drop_hot=drop_hot, on_bytes=advance)
    segments = [published.segment for published in result.published if published.segment]
    stored = sum(segment.data_length for segment in segments)
    raw = sum(segment.frame_bytes for segment in segments)
    commits = ", ".join(f"lsn {published.lsn}" for published in result.published) or "nothing new"
    lines = [f"{name}: offloaded up to seq {result.offloaded_seq} ({commits})"]
    if segments:
        lines.append(f"  {format_bytes(raw)} of frames became {format_bytes(stored)} in {archive.url}")
    if result.released_seq:
        lines.append(f"  read back, then deleted the hot copy up to seq {result.released_seq}")
    if result.unsealed_records:
        lines.append(f"  {counted(result.unsealed_records)} in the unsealed tail: `seglog seal {name}`")
    emit(
        session,
        {
            "topic": name,
            "offloaded_seq": result.offloaded_seq,
            "lsns": [published.lsn for published in result.published],
            "frame_bytes": raw,
            "stored_bytes": stored,
            "released_seq": result.released_seq,
            "unsealed_records": result.unsealed_records,
        },
        "\n".join(lines),
    )
