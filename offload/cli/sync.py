"""The commands `seglog push`, `pull`, `fetch`, `sync`, `reset` and `takeover`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from offload.cli.run import describe, each, one, show
from offload.cli.session import TopicName, counted
from offload.commands import sync as use
from offload.commands.sync import SyncedTopic, TopicReset

__all__ = ["fetch", "pull", "push", "reset", "sync", "takeover"]


@describe(use.push)
def push(context: typer.Context, topic: TopicName) -> None:
    pushed = one(context, use.push, topic=topic)
    told = ", ".join(f"lsn {lsn}" for lsn in pushed.lsns) or "nothing new"
    show(context, pushed, f"{topic}: pushed {told}, now at {pushed.place.state}")


@describe(use.pull)
def pull(context: typer.Context, topic: TopicName) -> None:
    place = one(context, use.pull, topic=topic)
    show(context, place, f"{topic}: {place.state}")


@describe(use.fetch)
def fetch(context: typer.Context, topic: TopicName) -> None:
    place = one(context, use.fetch, topic=topic)
    show(context, place, f"{topic}: {place.state}")


@describe(use.sync)
def sync(
    context: typer.Context,
    topic: TopicName,
    follow: Annotated[bool, typer.Option("--follow")] = False,
    interval: Annotated[float, typer.Option(min=0.05)] = 5.0,
) -> None:
    for synced in each(context, use.sync, topic=topic, follow=follow, interval=interval):
        show(context, synced, _synced(synced))
        sys.stdout.flush()


@describe(use.reset)
def reset(
    context: typer.Context,
    topic: TopicName,
    as_branch: Annotated[str | None, typer.Option("--as", show_default=False)] = None,
    discard: Annotated[bool, typer.Option("--discard")] = False,
) -> None:
    done = one(context, use.reset, topic=topic, as_branch=as_branch, discard=discard)
    show(context, done, _reset(done))


@describe(use.takeover)
def takeover(context: typer.Context, topic: TopicName) -> None:
    taken = one(context, use.takeover, topic=topic)
    show(context, taken, f"{topic} is written here from seq {taken.next_seq} on (epoch {taken.epoch})")


def _synced(synced: SyncedTopic) -> str:
    done = [f"took in {counted(synced.commits, 'commit')}"] if synced.commits else []
    done += [f"pushed {', '.join(f'lsn {lsn}' for lsn in synced.lsns)}"] if synced.lsns else []
    return f"{synced.place.topic}: {', '.join(done) or 'nothing new'}, {synced.role} at {synced.place.state}"


def _reset(done: TopicReset) -> str:
    now = f"follows its volume at lsn {done.lsn}" if done.is_followed else "is gone here, too"
    end = f"{done.topic} {now}"
    changes = f"{counted(done.records)} and {counted(done.deletes, 'delete')}"
    if done.branch is None:
        return f"{end}; {changes} were dropped" if done.has_changes else end
    first = "" if done.is_followed else ", from seq 1 on"
    steps = f"`seglog seal {done.branch}`, then `seglog offload {done.branch}` bring them to the remote"
    return f"{end}; {changes} are on {done.branch}{first}, in this directory only: {steps}"
