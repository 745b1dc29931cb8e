"""The routes of a daemon of many tenants, and the choice of the tenant of a request.

    check                      answer            applies to
    host, origin, token        421, 403, 401     each request (offload.daemon.clients)
    tenant                     404               a path /tenants/NAME/..., or a token that is bound to a tenant
    open                       503               a tenant whose directory is not open
    places, sizes, quotas      429, 413, 507     the guard of the tenant (offload.daemon.request_limits)

    request                    of a bound token                   of another token
    /tenants/NAME/topics/...   its own tenant; else 404           that tenant; 404 without one
    /topics/..., /rpc/...      its own tenant                     404
    /metrics, /readyz          its own tenant                     the daemon; /metrics of all tenants, on all topics
    /tenants                   403                                the tenants with their states, for an admin

BOUND-1  For a bound token, the router compares the name with that of the token, and looks nothing up. So a foreign
    name and a missing one get the same bytes after the same work.
BOUND-2  A name is read from the path as it came. A name that is percent-encoded is missing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from offload.daemon.asgi import PREFIX_KEY, App, Receive, Scope, Send, tenant_id
from offload.daemon.clients import for_checked_clients
from offload.daemon.http import operations as api
from offload.daemon.http.answers import app_of
from offload.daemon.http.parameters import query_of
from offload.daemon.http.probes import HEALTH, METRICS, OPENAPI, READY, document
from offload.daemon.http.roles import guarded
from offload.daemon.problems import refuse
from offload.daemon.revocation import OpenAnswers
from offload.daemon.tenants import Tenant, Tenants
from offload.daemon.tickets import Tickets
from offload.errors import OffloadError
from offload.token_rights import Role, Tokens, rights_of
from seglog.base.errors import Missing, Unavailable

_HINT = "name the tenant: /tenants/NAME/topics/..., or use a token that is bound to it"
_NAMED = re.compile(rb"/tenants/([^/?]+)([^?]*)")
_TENANT = api.object_of("error", name=str, state={"enum": ["opening", "open", "failed"]}, error=str)
TENANTS = api.Operation(
    "GET", "/tenants", "listTenants", Role.ADMIN, "daemon", "The tenants of a daemon of many, for an unbound admin.",
    {200: ("The tenants.", api.json_answer("tenants", {"tenants": [{"name": "acme", "state": "open"}]}))},
    errors=(404,), schemas={"tenants": api.object_of(tenants={"type": "array", "items": _TENANT})},
)  # fmt: skip


class TenantClosed(Unavailable, OffloadError):
    """The daemon did not open the tenant's directory, or not yet. Its log has the reason."""

    message = "the tenant is not open"
    hint = "the daemon's log has the reason; SIGHUP tries again"


class NoSuchTenant(Missing, OffloadError):
    """The daemon has no such tenant, or the token is bound to another one. The message is the same."""

    message = "there is no such tenant"
    hint = "a token that is bound to a tenant asks without /tenants/NAME; another one names the tenant"


def router(
    tenants: Tenants,
    tokens: Callable[[], Tokens | None],
    open_answers: OpenAnswers | None = None,
    tickets: Tickets | None = None,
) -> App:
    """Return the ASGI application over TCP: it checks the client, and passes the request to the tenant."""
    root = make_root_app(tenants)

    async def pass_on(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            app = _app_of(tenants, scope) or root
        except (NoSuchTenant, TenantClosed) as refusal:
            tenants.count_rejected("tenant")
            await refuse(refusal, send)
            return
        await app(scope, receive, send)

    return for_checked_clients(pass_on, lambda: tenants.settings, tokens, tenants.count_rejected, open_answers, tickets)


def _app_of(tenants: Tenants, scope: Scope) -> App | None:
    """Return the application of the request's tenant, and take the prefix from its path; None for the daemon itself.

    Raises `NoSuchTenant`, `TenantClosed`.
    """
    bound = rights_of(scope).tenant
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    named = _NAMED.fullmatch(raw.partition(b"?")[0])
    name = named[1].decode("ascii", "replace") if named else bound
    if not name or scope["path"] in ("/healthz", "/tenants"):
        return None
    tenant = tenants.find(name) if not bound or name == bound else None  # BOUND-1: nothing is looked up
    if tenant is None:
        raise NoSuchTenant
    if tenant.app is None:
        raise TenantClosed
    if named:
        scope["path"] = scope["path"][len(f"/tenants/{name}") :] or "/"
        scope["raw_path"] = named[2] or b"/"
        scope[PREFIX_KEY] = f"/tenants/{name}"
    tenant_id.set(name)
    return tenant.app


def make_root_app(tenants: Tenants) -> Starlette:
    """Return the ASGI application of the daemon itself."""
    routes = _Routes(tenants)
    found = [
        HEALTH.route(routes.health),
        READY.route(routes.ready),
        METRICS.route(routes.metrics),
        OPENAPI.route(routes.openapi),
        TENANTS.route(routes.names),
    ]
    return app_of([guarded(each) for each in found], _HINT)


def make_root_probe_app(tenants: Tenants, *, with_metrics: bool) -> Starlette:
    """Return the ASGI application of the probe port. It asks for no token."""
    routes = _Routes(tenants)
    found = [HEALTH.route(routes.health), READY.route(routes.ready)]
    if with_metrics:
        found.append(METRICS.route(routes.metrics))
    return app_of(found, _HINT)


class _Routes:
    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants

    async def health(self, _request: Request) -> Response:
        """Answer 200. A tenant whose log failed says so at its own /healthz."""
        return JSONResponse({"status": "ok"})

    async def ready(self, _request: Request) -> Response:
        """Answer 200 once the daemon has opened its tenants, and until it stops."""
        tenants = self._tenants
        is_stopping = tenants.is_leaving or tenants.stopping.is_set()
        is_ready = tenants.has_opened and not is_stopping
        worst = max((each.service.disk for each in tenants if each.service), key=lambda each: each.value, default=None)
        disk = "fine" if worst is None else worst.name.lower()
        return JSONResponse({"ready": is_ready, "disk": disk, "stopping": is_stopping}, 200 if is_ready else 503)

    async def metrics(self, request: Request) -> Response:
        rights = rights_of(request.scope)
        rights.check_all_tenants(Role.METRICS)  # the series name all tenants
        body = await asyncio.to_thread(self._tenants.text, lambda topic: rights.shows(topic, Role.METRICS))
        return Response(body, media_type="text/plain; version=0.0.4")

    async def openapi(self, _request: Request) -> Response:
        return Response(document(), media_type="application/json")

    async def names(self, request: Request) -> Response:
        rights_of(request.scope).check_all_tenants(Role.ADMIN)
        query_of(request)
        return JSONResponse({"tenants": [_shown(each) for each in self._tenants]})


def _shown(tenant: Tenant) -> dict[str, str]:
    shown = {"name": tenant.name, "state": tenant.state}
    return {**shown, "error": tenant.error} if tenant.error else shown
