"""The dtypes of this package, imported when one of them is first used (seglog.format.arrays)."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["dtypes"]

if TYPE_CHECKING:
    from offload.format import dtypes
else:
    from seglog.base.lazy import LazyModule

    dtypes = LazyModule("offload.format.dtypes")
