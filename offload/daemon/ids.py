"""The ids of the request under way and of its tenant, for answers, problems and lines of the log."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

request_id: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""The id. It is empty outside a request."""

tenant_id: Final[ContextVar[str]] = ContextVar("tenant_id", default="")
"""The name of the tenant that the daemon works for. It is empty outside a tenant.

A request sets it in its own task, a background task has it from its start, and a thread of a service from its start.
"""
