"""The checks of a client over TCP, which are the same for each tenant: its host, its origin and its token.

The guard calls them in a daemon of one directory, and the router of tenants in one of many.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from functools import lru_cache
from typing import Any

from offload.daemon.origins import is_allowed, is_preflight
from offload.errors import Refused
from offload.rights import RIGHTS_KEY, Tokens
from offload.settings import ServeSettings

__all__ = ["check_client"]


def check_client(
    scope: MutableMapping[str, Any], headers: Mapping[bytes, bytes], settings: ServeSettings, tokens: Tokens | None
) -> None:
    """Put the rights of the client's token into the scope of its request. Raises `Refused` with 421, 403 or 401."""
    host = headers.get(b"host", b"").decode("latin-1")
    if not _is_on_list(host, settings.allowed_hosts):
        hint = "add it to serve.allowed_hosts"
        raise Refused(421, "host", f"this daemon does not answer for the host {host!r}", hint=hint)
    if b"origin" in headers and not is_allowed(headers, settings.allowed_origins):
        hint = "add its origin to serve.allowed_origins"
        raise Refused(403, "origin", "the daemon refuses requests from this web page", hint=hint)
    if tokens is not None and scope["path"] != "/healthz" and not is_preflight(scope["method"], headers):
        scope[RIGHTS_KEY] = tokens.rights_of(headers.get(b"authorization", b""))


@lru_cache(256)
def _is_on_list(host: str, allowed_hosts: str) -> bool:
    return _name_of(host).lower() in {name.strip().lower() for name in allowed_hosts.split(",")}


def _name_of(host: str) -> str:
    """Return the host without its port."""
    return host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
