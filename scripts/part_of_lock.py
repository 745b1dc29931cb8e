"""Print the part of requirements.lock that some packages need: `python scripts/part_of_lock.py [NAME...]`.

Without names, it is the part for seglog itself and for its extras `daemon`, `uvloop` and `ws`, which
docs/deploy/Containerfile installs. The lock names above each package the packages that need it, so no other file has to
be read.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["part_of", "runtime_names"]

_ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"^(?=\S)(?!#)", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_VIA = re.compile(r"^ +# +(?:via +)?([A-Za-z0-9._-]+)$", re.MULTILINE)


def part_of(lock: str, names: Iterable[str]) -> str:
    """Return the blocks of the named packages, and of all that they need. Raise `ValueError` for an unknown name."""
    blocks = [(_plain(_NAME.match(block)[0]), block) for block in _BLOCK.split(lock) if block]  # type: ignore[index]
    wanted = {_plain(name) for name in names}
    unknown = wanted - {name for name, _ in blocks}
    if unknown:
        raise ValueError(f"requirements.lock has no {', '.join(sorted(unknown))}")
    while True:
        needed = {name for name, block in blocks if wanted & {_plain(via) for via in _VIA.findall(block)}}
        if needed <= wanted:
            return "".join(block for name, block in blocks if name in wanted)
        wanted |= needed


def runtime_names() -> list[str]:
    """Return the packages that pyproject.toml names for the daemon."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    given = [*project["dependencies"], *(each for name in ("daemon", "uvloop", "ws") for each in extras[name])]
    return [_NAME.match(each)[0] for each in given]  # type: ignore[index]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.stdout.write(part_of((_ROOT / "requirements.lock").read_text(), sys.argv[1:] or runtime_names()))
