"""The tenant that the daemon works for, for lines of its log.

A request sets it in its own task, a background task has it from its start, and a thread of a service from its start.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

__all__ = ["tenant_id"]

tenant_id: Final[ContextVar[str]] = ContextVar("tenant_id", default="")
"""The name. It is empty outside a tenant."""
