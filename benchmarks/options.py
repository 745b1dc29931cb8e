"""The options of a run, and their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run.

    `directory` is where a benchmark writes and removes its files: put it on the disk to measure. `bulk_mib` is the size
    of the values that Spark scans, and of the file of `bulk`. `slice_s` is the length of a subject's turn in
    `benchmarks.slices`.
    With `quick`, sizes are so small that they say nothing about speed.
    """

    directory: Path = Path("build/bench")
    rounds: int = 5
    size_mib: int = 64
    bulk_mib: int = 2048
    slice_s: float = 0.2
    quick: bool = False

    @classmethod
    def smoke(cls, directory: Path) -> Options:
        """Return options that show within seconds whether the benchmarks run at all."""
        return cls(directory, rounds=1, size_mib=1, bulk_mib=2, slice_s=0.01, quick=True)
