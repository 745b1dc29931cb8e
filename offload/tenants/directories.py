"""The data directories below a root, each of a tenant with its name."""

from __future__ import annotations

from pathlib import Path

from seglog import SETTINGS_FILE

__all__ = ["data_directories"]

_META = "meta"


def data_directories(root: Path) -> dict[str, Path]:
    """Return the data directories below the root by their names. A directory that does not open is among them."""
    found = (each for each in root.iterdir() if (each / _META).is_dir() or (each / SETTINGS_FILE).is_file())
    return {each.name: each for each in sorted(found)}
