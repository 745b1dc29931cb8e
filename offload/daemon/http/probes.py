"""The routes that ask the daemon how it is: probes, metrics and the OpenAPI document."""

from __future__ import annotations

import functools
import json

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from offload.daemon.http import operations as api
from offload.daemon.http.answers import app_of
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from offload.operations.command import COMMANDS
from offload.token_rights import Role, rights_of

HEALTH = api.Operation(
    "GET", "/healthz", "health", None, "probes", "Whether acked records are safe and the log is readable.",
    {
        200: ("Healthy.", api.json_answer("health", {"status": "ok"})),
        503: ("A write failed: restart the daemon.", api.json_answer("health", {"status": "poisoned"})),
    },
    schemas={"health": api.object_of(status={"enum": ["ok", "poisoned"]})},
)  # fmt: skip
READY = api.Operation(
    "GET", "/readyz", "ready", Role.METRICS, "probes", "Whether the daemon takes appends.",
    {
        200: ("Ready.", api.json_answer("ready", {"ready": True, "disk": "fine", "stopping": False})),
        503: (
            "Not now: the disk is full, a write failed, or the daemon is stopping.",
            api.json_answer("ready", {"ready": False, "disk": "full", "stopping": False}),
        ),
    },
    schemas={"ready": api.object_of(ready=bool, disk={"enum": ["fine", "alarm", "full"]}, stopping=bool)},
)  # fmt: skip
METRICS = api.Operation(
    "GET", "/metrics", "metrics", Role.METRICS, "probes", "Figures for Prometheus, in its text format.",
    {200: ("The figures.", {"text/plain": {"schema": api.TEXT}})},
)  # fmt: skip
OPENAPI = api.Operation(
    "GET", "/openapi.json", "openapi", Role.METRICS, "probes", "This document.",
    {200: ("The document.", {"application/json": {"schema": {"type": "object"}}})},
)  # fmt: skip


def probe_routes(service: Service) -> list[api.RoledRoute]:
    probes = _Probes(service)
    return [
        HEALTH.route(probes.health),
        READY.route(probes.ready),
        METRICS.route(probes.metrics),
        OPENAPI.route(probes.openapi),
    ]


def make_probe_app(service: Service, *, with_metrics: bool) -> Starlette:
    """Return the ASGI application of the probe port. No guard stands in front of it."""
    return app_of(probe_routes(service)[: 3 if with_metrics else 2])


class _Probes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def health(self, _request: Request) -> Response:
        """Answer 200 while acked records are safe and the log is readable, else 503."""
        is_poisoned = self._service.sync.is_poisoned
        return JSONResponse({"status": "poisoned" if is_poisoned else "ok"}, 503 if is_poisoned else 200)

    async def ready(self, _request: Request) -> Response:
        """Answer 200 while the daemon takes appends, else 503."""
        service = self._service
        is_stopping = service.is_leaving or service.stopping.is_set()
        body = {"ready": service.is_ready, "disk": service.disk.name.lower(), "stopping": is_stopping}
        return JSONResponse(body, 200 if service.is_ready else 503)

    async def metrics(self, request: Request) -> Response:
        rights = rights_of(request.scope)
        text = self._service.metrics.text
        body = await in_threads(self._service.local, text, lambda topic: rights.shows(topic, Role.METRICS))
        return Response(body, media_type="text/plain; version=0.0.4")

    async def openapi(self, _request: Request) -> Response:
        return Response(document(), media_type="application/json")


@functools.cache
def document() -> bytes:
    """Return the OpenAPI document, made once: each tenant of a daemon has these routes."""
    from offload.daemon.http.openapi import openapi  # it lists what this file declares

    return json.dumps(openapi(COMMANDS), separators=(",", ":")).encode()
