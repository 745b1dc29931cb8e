"""What a user may set for a run, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """`directory` is where a benchmark writes (and removes) its files: put it on the disk that is to be measured."""

    directory: Path = Path("build/bench")
    rounds: int = 5
    size_mib: int = 256
