"""Requests to an application of the daemon without a server."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

from offload.token_rights import EVERYTHING, RIGHTS_KEY

__all__ = ["BYTES", "asked"]

BYTES = (b"content-type", b"application/octet-stream")


async def asked(
    app: Any, path: str, *headers: tuple[bytes, bytes], body: bytes = b"value", **more: Any
) -> tuple[int, Any, Any]:
    """Send a request. Return the status, the body, and the route that the metrics name."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "root_path": "",
        "headers": list(headers),
        RIGHTS_KEY: EVERYTHING,
        **more,
    }
    await app(scope, receive, send)
    answer = b"".join(each.get("body", b"") for each in sent[1:])
    assert sent[0]["status"] == 204 or dict(sent[0]["headers"])[b"content-length"] == b"%d" % len(answer)
    route = scope.get("route")
    return sent[0]["status"], json.loads(answer) if answer else None, getattr(route, "path", None)
