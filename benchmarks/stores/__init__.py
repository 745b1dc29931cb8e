"""What is measured side by side: seglog, and the yardsticks, each behind one function that appends.

A store is opened in an empty directory and gives `append(values)`: all of them or none, and on return as safe as the
store was opened to make them. A yardstick that is not installed raises `benchmarks.slices.Unavailable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

__all__ = ["Append", "Store"]

Append: TypeAlias = Callable[[Sequence[bytes]], object]
Store: TypeAlias = Callable[[Path], AbstractContextManager[Append]]
