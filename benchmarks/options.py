"""What a user may set for a run, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """`directory` is where a benchmark writes (and removes) its files: put it on the disk that is to be measured.

    `slice_s` is how long a subject of `benchmarks.slices` has its turn. `quick`: sizes that say nothing about speed.
    """

    directory: Path = Path("build/bench")
    rounds: int = 5
    size_mib: int = 64
    slice_s: float = 0.2
    quick: bool = False

    @classmethod
    def smoke(cls, directory: Path) -> Options:
        """Whether it runs at all, within seconds."""
        return cls(directory, rounds=1, size_mib=1, slice_s=0.01, quick=True)
