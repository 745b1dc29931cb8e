from __future__ import annotations

from tests.offload.spark.judge import judge
from tests.offload.spark.session import spark

__all__ = ["judge", "spark"]
