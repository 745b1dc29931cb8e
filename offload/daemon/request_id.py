"""The id of the request under way, for the answer, the log and problems."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

__all__ = ["request_id"]

request_id: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""The id. It is empty outside a request."""
