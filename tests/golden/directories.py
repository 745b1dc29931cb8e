"""The golden directories of older releases, opened on a disk in memory."""

from __future__ import annotations

from pathlib import Path

from seglog import LogSettings
from tests.faults.disk import Image, SimulatedDisk
from tests.golden.make_seglog import DIRECTORY

__all__ = ["SETTINGS", "golden", "on_disk"]

SETTINGS = LogSettings(segment_max_events=4, wal_file_bytes=8192)


def golden(directory: Path = DIRECTORY) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def on_disk(files: dict[str, bytes]) -> SimulatedDisk:
    tree: dict[str, bytes | None] = {"/log": None}
    for name, body in files.items():
        tree[f"/log/{name}"] = body
        tree |= {str(folder): None for folder in list(Path("/log", name).parents)[:-1]}
    return SimulatedDisk(Image(tree))
