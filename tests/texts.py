"""Texts to run the main job on: eleven real logs if they are on this machine, else invented lines of the same shapes.

The real logs come from the loghub collection (github.com/logpai/loghub; Jieming Zhu, Shilin He, Pinjia He, Jinyang Liu,
Michael R. Lyu: Loghub, ISSRE 2023). The tests read them in place. The logs are not part of this project.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

__all__ = ["NAMES", "text"]

NAMES = (
    "Android", "Apache", "HDFS", "HPC", "Hadoop", "HealthApp", "Linux", "Mac", "OpenSSH", "Proxifier", "Spark",
)  # fmt: skip

_SHARED = Path(os.environ.get("SEGLOG_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
_ENDS = (b"\n", b"\r\n", b"\n", b"\r\r\n")


def text(name: str) -> bytes:
    """Return the log of that name, or a text with the same oddities: CRLF, bare CR, long lines, invalid UTF-8."""
    path = _SHARED / f"{name}_2k.log"
    return path.read_bytes() if path.is_file() else _made(name)


def _made(name: str) -> bytes:
    chance = random.Random(name)
    end = chance.choice(_ENDS)
    lines = [_line(chance, number) for number in range(2000)]
    body = end.join(lines)
    return body + end if chance.random() < 0.5 else body


def _line(chance: random.Random, number: int) -> bytes:
    kind = chance.random()
    if kind < 0.02:
        return b""
    if kind < 0.04:
        return b"bare\rCR and \xff\xfe\x00 bytes"
    if kind < 0.05:
        return b"long " * chance.randrange(500, 2000)
    clock = f"2026-11-21 08:{number // 60 % 60:02d}:{number % 60:02d}"
    return f"{clock} INFO worker-{chance.randrange(9)} took {number} ms".encode()
