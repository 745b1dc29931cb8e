"""Another number of shards than the write-ahead log has: before the first append, when a checkpoint has absorbed all.

    1 make     the folders that are new, each with an empty file and a CURRENT, durable. One that stays goes on
    2 switch   a snapshot that has one place for each shard of the new number
    3 remove   the folders that are not of that number

Before 2 the old ones hold all there is, from 2 on the new ones do, and the others hold nothing that is needed. The
newest snapshot says which number counts, so a crash anywhere leaves what the next opening removes, and begins again.
"""

from __future__ import annotations

from dataclasses import replace

from seglog.files.port import Files
from seglog.values.layout import Layout, WalFolder, number_in
from seglog.wal.manifest import WalPosition, load, store
from seglog.wal.shards import first_ordinal
from seglog.wal.wal import create_first

__all__ = ["remove_other_shards", "reshard"]


def reshard(files: Files, layout: Layout, shards: int) -> None:
    """All is in segments, and nobody appends. Raises `OSError`; repeat it then."""
    number, snapshot = load(files, layout)
    there = dict(zip(layout.wal_folders(len(snapshot.wal)), snapshot.wal, strict=True))
    folders = layout.wal_folders(shards)
    fresh = [folder for folder in folders if folder not in there]
    for folder in fresh:
        files.make_dir(folder.path)
    files.sync_dir(layout.wal)
    places = [
        there.get(folder) or _create(files, folder, first_ordinal(shard, shards))
        for shard, folder in enumerate(folders)
    ]
    store(files, layout, number + 1, replace(snapshot, wal=tuple(places)))
    remove_other_shards(files, layout, shards)


def remove_other_shards(files: Files, layout: Layout, shards: int) -> None:
    """Step 3. `shards` is what the newest snapshot says. Nothing is left to do, usually."""
    kept = {folder.path for folder in layout.wal_folders(shards)}
    for name in files.list_dir(layout.wal):
        path = layout.wal / name
        if layout.is_wal_shard(name) and path not in kept:
            for inner in files.list_dir(path):
                files.unlink(path / inner)
            files.remove_dir(path)
        elif layout.wal not in kept and _is_wal_name(name):
            files.unlink(path)


def _is_wal_name(name: str) -> bool:
    """Whether a file of that name belongs to a WAL, in its folder."""
    return name in ("CURRENT", "CURRENT.tmp", "next.log") or number_in("wal", name) is not None


def _create(files: Files, folder: WalFolder, first: int) -> WalPosition:
    """What an earlier try has left, or a WAL long ago, goes first."""
    for name in files.list_dir(folder.path):
        if _is_wal_name(name):
            files.unlink(folder.path / name)
    return create_first(files, folder, first)
