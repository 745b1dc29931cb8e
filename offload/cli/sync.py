"""The texts of `seglog push`, `pull`, `fetch`, `sync`, `reset` and `takeover`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from offload.cli.preview import taking_lines
from offload.operations.printing import Output, lines
from offload.operations.sync import Pushed, SyncedTopic, SyncPosition, TakenOver, TopicReset
from offload.operations.units import counted

__all__ = [
    "print_position",
    "print_pushed",
    "print_reset",
    "print_synced",
    "print_taken_over",
]


def pushed_text(pushed: Pushed) -> str:
    told = ", ".join(f"lsn {lsn}" for lsn in pushed.lsns) or "nothing new"
    return f"{pushed.place.topic}: pushed {told}, now at {pushed.place.state}"


def position_text(position: SyncPosition) -> str:
    return f"{position.topic}: {position.state}"


def print_synced(output: Output, results: Iterator[SyncedTopic], _: Mapping[str, Any]) -> None:
    """Print each look as it comes: with --follow the next one may be far away."""
    for synced in results:
        done = [f"took in {counted(synced.commits, 'commit')}"] if synced.commits else []
        done += [f"pushed {', '.join(f'lsn {lsn}' for lsn in synced.lsns)}"] if synced.lsns else []
        told = f"{', '.join(done) or 'nothing new'}, {synced.role} at {synced.place.state}"
        output.show(synced, f"{synced.place.topic}: {told}")
        output.flush()


def taken_over_text(taken: TakenOver) -> str:
    return f"{taken.topic} is written here from seq {taken.next_seq} on (epoch {taken.epoch})"


def reset_text(done: TopicReset) -> str:
    now = f"follows its volume at lsn {done.lsn}" if done.is_followed else "is gone here, too"
    end = f"{done.topic} {now}"
    changes = f"{counted(done.records)} and {counted(done.deletes, 'delete')}"
    if done.branch is None:
        return f"{end}; {changes} were dropped" if done.has_changes else end
    first = "" if done.is_followed else ", from seq 1 on"
    steps = f"`seglog seal {done.branch}`, then `seglog offload {done.branch}` bring them to the remote"
    return f"{end}; {changes} are on {done.branch}{first}, in this directory only: {steps}"


print_pushed = lines(pushed_text)
print_position = lines(position_text)
print_reset = taking_lines(reset_text)
print_taken_over = lines(taken_over_text)
