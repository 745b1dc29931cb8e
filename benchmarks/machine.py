"""Describes the machine of a measurement, in one line that is printed with every result."""

from __future__ import annotations

import datetime as dt
import os
import platform
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Machine", "describe", "file_system"]


@dataclass(frozen=True, slots=True)
class Machine:
    processor: str
    cores: int
    system: str
    python: str
    file_system: str
    date: str

    def line(self) -> str:
        cores, python = f"{self.cores} cores", f"Python {self.python}"
        return ", ".join((self.processor, cores, self.system, python, self.file_system, self.date))


def describe(directory: Path) -> Machine:
    """Return the machine as it is now. `directory` is where the benchmark writes."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        file_system=file_system(directory, _mounts()),
        date=dt.datetime.now(dt.UTC).date().isoformat(),
    )


def file_system(directory: Path, mounts: str) -> str:
    """Return the type and device of the file system that holds `directory`, from the text of /proc/mounts."""
    found = "unknown file system"
    longest = -1
    for line in mounts.splitlines():
        device, place, kind = line.split()[:3]
        if directory.resolve().is_relative_to(place) and len(place) > longest:
            found, longest = f"{kind} on {device}", len(place)
    return found


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _mounts() -> str:
    mounts = Path("/proc/mounts")
    return mounts.read_text() if mounts.exists() else ""
