"""Test the ids that the entrance gives to requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import MutableMapping
from typing import Any

from offload.daemon.asgi import Receive, Scope, Send
from offload.daemon.request_log import entrance
from offload.daemon.stopping import StopEvent
from offload.settings import ServeSettings


class _Host:
    is_leaving = False
    tenant = ""

    def __init__(self) -> None:
        self.settings = ServeSettings()
        self.stopping = StopEvent()


def _given_id() -> str:
    """Return the id of one request that names none itself."""
    told: list[MutableMapping[str, Any]] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        told.append(message)

    scope = {"type": "http", "method": "GET", "path": "/topics", "raw_path": b"/topics", "headers": []}
    asyncio.run(entrance(app, _Host())(scope, receive, send))
    return dict(told[0]["headers"])[b"seglog-request-id"].decode()


def test_nobody_can_compute_the_ids_of_other_requests() -> None:
    """A generator with a state would tell each client how many requests the others make."""
    found, state = set(), random.getstate()
    for _ in range(3):
        random.seed(7)
        found.add(_given_id())
    random.setstate(state)
    assert len(found) == 3
    assert all(len(each) == 16 and int(each, 16) >= 0 for each in found)
