"""The command `seglog seal`."""

from __future__ import annotations

import typer

from offload.cli.session import TopicName, emit, session_of

__all__ = ["seal"]


def seal(context: typer.Context, topic: TopicName) -> None:
    """Close the segment that is being written, so that everything appended so far can be offloaded."""
    session = session_of(context)
    with session.log() as log:
        handle = log.get_topic(topic)
        handle.seal()
        segments = [segment for segment in handle.segments() if segment.sealed]
        emit(
            session,
            {"topic": topic, "sealed_seq": handle.sealed_seq, "segments": len(segments)},
            f"{topic} is sealed up to seq {handle.sealed_seq}: {len(segments)} sealed segments on this disk",
        )
