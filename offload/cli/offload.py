"""The commands `seglog offload`, `pause`, `resume` and `retry`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.run import describe, each, note, one, show
from offload.cli.session import TopicName, counted, format_bytes
from offload.commands import offload as use
from offload.commands.offload import Offloaded, TopicFailed, WouldSend

__all__ = ["offload", "pause", "resume", "retry"]


@describe(use.offload)
def offload(
    context: typer.Context,
    topic: Annotated[str | None, typer.Argument(show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all")] = False,
    up_to: Annotated[int | None, typer.Option(show_default=False)] = None,
    drop_hot: Annotated[bool, typer.Option()] = False,
    dry_run: Annotated[bool, typer.Option()] = False,
) -> None:
    for done in each(context, use.offload, topic=topic, every=every, up_to=up_to, drop_hot=drop_hot, dry_run=dry_run):
        if isinstance(done, TopicFailed):
            note(f"{done.topic}: {done.error}")
        else:
            show(context, done, _describe(done))


@describe(use.pause)
def pause(context: typer.Context, topic: TopicName) -> None:
    show(context, one(context, use.pause, topic=topic), f"{topic} is paused")


@describe(use.resume)
def resume(context: typer.Context, topic: TopicName) -> None:
    show(context, one(context, use.resume, topic=topic), f"{topic} is resumed")


@describe(use.retry)
def retry(context: typer.Context, topic: TopicName) -> None:
    tried = one(context, use.retry, topic=topic)
    show(context, tried, f"{tried.topic} is tried again")


def _describe(done: Offloaded | WouldSend) -> str:
    if isinstance(done, WouldSend):
        return f"{done.topic}: {format_bytes(done.would_send_bytes)} of sealed segments would be sent to {done.url}"
    commits = ", ".join(f"lsn {lsn}" for lsn in done.lsns) or "nothing new"
    lines = [f"{done.topic}: offloaded up to seq {done.offloaded_seq} ({commits})"]
    if done.has_segments:
        frames, stored = format_bytes(done.frame_bytes), format_bytes(done.stored_bytes)
        lines.append(f"  {frames} of frames became {stored} in {done.url}")
    if done.released_seq:
        lines.append(f"  read back, then deleted the hot copy up to seq {done.released_seq}")
    if done.unsealed_records:
        lines.append(f"  {counted(done.unsealed_records)} in the unsealed tail: `seglog seal {done.topic}`")
    return "\n".join(lines)
