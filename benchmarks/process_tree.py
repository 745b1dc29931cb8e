"""The CPU seconds of a process and all its descendants, and the bytes that they read, from /proc.

A process counts its own time, and the time of ended children that it waited for. So the sum over the processes
that live is the time of all of them. The kernel counts in hundredths of a second.

The kernel counts the bytes that calls of read return, whatever they read: files, the page cache, pipes and sockets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["cpu_seconds", "processes", "read_bytes"]

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT = 1  # the fields of /proc/PID/stat behind the name
_TIMES = slice(11, 15)  # user, system, and both of the children that ended


def cpu_seconds(root: int | None = None) -> float:
    """Return the CPU seconds of `root` and its descendants. `root` is this process by default."""
    ticks = 0
    for pid in processes(root if root is not None else os.getpid()):
        ticks += sum(int(field) for field in _stat(pid)[_TIMES])
    return ticks / _TICKS


def read_bytes(root: int, wanted: Callable[[str], bool]) -> int:
    """Return the bytes that were read by those of `root` and its descendants whose command line is `wanted`."""
    total = 0
    for pid in processes(root):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        if wanted(command):
            lines = Path(f"/proc/{pid}/io").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("rchar:"))
    return total


def processes(root: int) -> Iterator[int]:
    """Yield `root` and its descendants that live."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[_PARENT]), []).append(int(entry.name))
    found = [root]
    while found:
        pid = found.pop()
        yield pid
        found += children.get(pid, ())


def _stat(pid: int) -> list[str]:
    """Return the fields behind the name of the process. None of them if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
