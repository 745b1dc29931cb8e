"""The subjects measured side by side: seglog and the yardsticks, each behind one function that appends.

A store opens in an empty directory and yields `append(values)`. An append stores all values or none. When it returns,
they are as safe as the mode in which the store was opened. A yardstick that is not installed raises
`benchmarks.slices.Unavailable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

__all__ = ["Append", "Store"]

Append: TypeAlias = Callable[[Sequence[bytes]], object]
Store: TypeAlias = Callable[[Path], AbstractContextManager[Append]]
