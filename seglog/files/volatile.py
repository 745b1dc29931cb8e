"""Tell whether a directory is in memory. There an fsync returns, and nothing is durable.

A log on tmpfs works as any other, but a reboot or an unmount removes all of it. So the log warns when it is opened
there for writing.

Linux lists the kind of each mount in /proc/self/mountinfo. On other systems, no directory is known to be in memory.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["in_memory_kind", "kind_of_mount"]

_MOUNTS = Path("/proc/self/mountinfo")
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def in_memory_kind(directory: Path) -> str | None:
    """Return the kind of the directory's file system if it is in memory; None for any other or an unknown kind."""
    try:
        kind = kind_of_mount(_MOUNTS.read_bytes(), os.path.realpath(os.fsencode(directory)))
    except OSError:
        return None
    return kind if kind in _IN_MEMORY else None


def kind_of_mount(mounts: bytes, path: bytes) -> str | None:
    """Return the kind of the file system with that path. If several mounts are on one place, the last one counts."""
    best, kind = -1, None
    for line in mounts.splitlines():
        fields, separator, rest = line.partition(b" - ")
        words = fields.split(b" ")
        if not separator or len(words) < 5:
            continue
        place = _ESCAPED.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), words[4])
        holds = path == place or path.startswith(place.rstrip(b"/") + b"/")
        if holds and len(place) >= best:
            best, kind = len(place), rest.split(b" ", 1)[0].decode(errors="replace")
    return kind
