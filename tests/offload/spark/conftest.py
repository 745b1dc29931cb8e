from __future__ import annotations

from tests.offload.spark.session import spark

__all__ = ["spark"]
