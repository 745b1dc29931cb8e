from __future__ import annotations

from tests.interop.judge import judge

__all__ = ["judge"]
