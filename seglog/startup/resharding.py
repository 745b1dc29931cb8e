"""A change of the number of shards that the write-ahead log has.

An opening changes the number before the first append, after a checkpoint has absorbed the whole log.

    1 make     Make the new folders, each with an empty file and a CURRENT, durable. A folder of both numbers stays.
    2 switch   Write a manifest that has one place for each shard of the new number.
    3 remove   Remove the folders that are not of the new number.

Before step 2 the old folders hold the whole log. From step 2 on the new folders hold it, and nothing needs the others.
The newest manifest says which number counts. So after a crash at any step, the next opening removes the other folders
and begins again.
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
    """Change the number of shards to `shards`. All records are in segments, and no thread appends.

    After an `OSError`, call it again.
    """
    number, manifest = load(files, layout)
    there = dict(zip(layout.wal_folders(len(manifest.wal)), manifest.wal, strict=True))
    folders = layout.wal_folders(shards)
    fresh = [folder for folder in folders if folder not in there]
    for folder in fresh:
        files.make_dir(folder.path)
    files.sync_dir(layout.wal)
    places = [
        there.get(folder) or _create(files, folder, first_ordinal(shard, shards))
        for shard, folder in enumerate(folders)
    ]
    store(files, layout, number + 1, replace(manifest, wal=tuple(places)))
    remove_other_shards(files, layout, shards)


def remove_other_shards(files: Files, layout: Layout, shards: int) -> None:
    """Remove the folders of other numbers of shards (step 3). Usually there are none.

    `shards` is the number in the newest manifest.
    """
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
    """Tell whether a file of that name belongs to the WAL in its folder."""
    return name in ("CURRENT", "CURRENT.tmp", "next.log") or number_in("wal", name) is not None


def _create(files: Files, folder: WalFolder, first: int) -> WalPosition:
    """Create the first file of a shard. First remove the files of an earlier attempt, or of an earlier WAL."""
    for name in files.list_dir(folder.path):
        if _is_wal_name(name):
            files.unlink(folder.path / name)
    return create_first(files, folder, first)
