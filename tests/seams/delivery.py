"""The private parts of live delivery that tests look at or replace: the scheduler, cursors, tickets and sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from offload.daemon import serving as daemon_serving
from offload.daemon.http import queues as queues_http
from offload.daemon.http import websocket
from offload.daemon.job_records import JobRecords
from offload.operations import queue as queue_commands

Session = websocket._Session
new_server = daemon_serving._server


def pages_of(consumption: Any) -> Any:
    return consumption._pages


def timer_of(slots: Any) -> Any:
    return slots._timer


def load_states(cursors: Any) -> Any:
    return cursors._states()


def replace_states(patch: pytest.MonkeyPatch, cursors: Any, states: Callable[..., Any]) -> None:
    patch.setattr(cursors, "_states", states)


async def look_at_routers(routers: Any) -> None:
    """Do what the background does at each look."""
    await routers._look()


def outdate_routers(states: Any) -> None:
    """Let most records of the topic of routers be outdated."""
    states._keyed.records = 1_000_000


def known_tickets(tickets: Any) -> Any:
    return tickets._known


def ends_of(tickets: Any) -> Any:
    return tickets._ends_s


def has_waiters(news: Any) -> bool:
    """Return whether a topic of a merged stream waits for its turn."""
    return bool(news._turn._waiters)


def joined(patch: pytest.MonkeyPatch, make: Callable[[Any], Any]) -> None:
    """Put what `make` makes of the joining of a page's lines in its place."""
    patch.setattr(websocket, "_joined", make(websocket._joined))


def take_at(server: Any, path: Any) -> None:
    """Let a server take WebSockets at another path."""
    server._websocket_path = path


def taken_by(taking: Any, item: Any) -> Any:
    return taking._taken(item)


def acks_of(taking: Any, items: Any) -> Any:
    return taking._acks(items)


def deadlines_of(queue: Any) -> Any:
    return queue._deadlines


def bury_none(queues: Any) -> None:
    """Let no dead letter be appended until a restart."""
    queues.dead_letters.begin = lambda *_: None


def hold_reads(patch: pytest.MonkeyPatch, gate: Any) -> None:
    """Let each claim wait for `gate` behind the reads of its round."""
    read_ahead, read = JobRecords.read_ahead, JobRecords.read

    async def held_read(records: Any, seqs: Any) -> Any:
        found = await read(records, seqs)
        await gate.wait()
        return found

    async def held_read_ahead(*given: Any) -> None:
        await read_ahead(*given)
        await gate.wait()

    patch.setattr(JobRecords, "read", held_read)
    patch.setattr(JobRecords, "read_ahead", held_read_ahead)


def work_events(service: Any, *given: Any) -> Any:
    return queues_http._Queues(service)._events(*given)


def stop_clock(patch: pytest.MonkeyPatch, at_ms: int) -> None:
    """Let the commands of queues see this time."""
    patch.setattr(queue_commands, "_now_ms", lambda: at_ms)
