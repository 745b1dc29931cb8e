"""Creation and erasure of a data directory, and the traces that tell whether a log was there before.

**Creation.**

    1 folders    meta/, wal/ and topics/, durable
    2 file       the first WAL file, empty, durable
    3 manifest   the first one, without topics, durable
    4 CURRENT    from here on it is a data directory

CREATE-1  Nothing is appended before step 4. After a crash before step 4, the next opening repeats the steps.
CREATE-2  The result of a later step never exists without those of the earlier steps. If a folder, the WAL file or
    CURRENT is missing behind such a trace, somebody removed it. Then the directory is not new, and `FileCorrupt` names
    the missing part.

**Erasure** of a whole log from the disk.

    1 topics    The caller deletes each topic, as for a single topic. The warm stores drop the topic's segments.
    2 rename    meta/ becomes meta.removed/, durably. From here on there is no log. If a process opens the directory, it
                first finishes step 3.
    3 unlink    The write-ahead log and the topics folder are removed, and meta.removed/ last.

A crash before step 2 leaves a log with fewer topics. seglog.toml, LOCK and files that are not the log's stay.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from seglog.errors import FileCorrupt, NotADataDirectory
from seglog.files.open_file import OpenFile
from seglog.files.port import Files
from seglog.values.layout import Layout, WalFolder, number_in
from seglog.wal.manifest import LogManifest, new_mark_secret, numbers, store
from seglog.wal.wal import create_first_file, point_to

__all__ = ["check_never_used", "erase", "is_data_directory", "make_new", "missing_folder", "missing_part"]


def is_data_directory(files: Files, layout: Layout) -> bool:
    """Tell whether the directory has CURRENT, the last file that creation makes.

    With several shards, each shard's folder has one. A directory whose log is being erased is no data directory.
    """
    if _is_being_erased(files, layout):
        return False
    try:
        names = files.list_dir(layout.wal)
        shards = [name for name in names if layout.is_wal_shard(name)]
        return "CURRENT" in names or any("CURRENT" in files.list_dir(layout.wal / name) for name in shards)
    except (FileNotFoundError, NotADirectoryError):
        return False


def make_new(files: Files, layout: Layout) -> None:
    """Create a data directory (steps 1 to 4).

    Raises `FileCorrupt` if a log was there, and `NotADataDirectory` if a file is where a folder belongs.
    """
    # The process that made these directories may have been killed before it synced them.
    for path in layout.root.parents:
        with suppress(PermissionError):
            files.sync_dir(path)
    if _is_being_erased(files, layout):
        _finish_erasure(files, layout)
    check_never_used(files, layout)
    for path in _folders(layout):
        try:
            files.make_dir(path)
        except FileExistsError as error:
            raise NotADataDirectory(layout.root) from error
    files.sync_dir(layout.root)
    (folder,) = layout.wal_folders(1)
    first = create_first_file(files, folder)
    store(files, layout, 1, LogManifest(1, (), (first,), mark_secret=new_mark_secret()))
    point_to(files, folder, first.file)


def check_never_used(files: Files, layout: Layout) -> None:
    """Raise `FileCorrupt` for a part that was removed (CREATE-2). The directory is no data directory now."""
    missing = missing_part(files, layout)
    if missing is not None:
        kind = "folder" if missing in _folders(layout) else "file"
        raise FileCorrupt(missing, 0, f"the {kind} is missing")


def missing_part(files: Files, layout: Layout) -> Path | None:
    """Return the part that was removed from a directory without CURRENT (CREATE-2).

    None: there was no log, or it is being erased.
    """
    (folder,) = layout.wal_folders(1)
    if _is_being_erased(files, layout) or not _was_used(files, layout, folder):
        return None
    missing = missing_folder(files, layout) or folder.current
    return None if is_data_directory(files, layout) else missing  # another process may have made it by now


def missing_folder(files: Files, layout: Layout) -> Path | None:
    """Return the first of the three folders that is missing. None: all are there."""
    return next((path for path in _folders(layout) if not files.is_dir(path)), None)


def _folders(layout: Layout) -> tuple[Path, ...]:
    return layout.meta, layout.wal, layout.topics


def _was_used(files: Files, layout: Layout, folder: WalFolder) -> bool:
    """Tell whether a trace shows that a log was there."""
    manifests = numbers(files, layout) if files.is_dir(layout.meta) else []
    topics = files.list_dir(layout.topics) if files.is_dir(layout.topics) else []
    names = files.list_dir(layout.wal) if files.is_dir(layout.wal) else []
    if any(number > 1 for number in manifests) or any(number_in("topic", name) is not None for name in topics):
        return True
    wal_files = [number for name in names if (number := number_in("wal", name)) is not None]
    if manifests and (not wal_files or missing_folder(files, layout) is not None):
        return True
    return any(OpenFile(files, folder.wal_file(number)).size() for number in wal_files)


def erase(files: Files, layout: Layout) -> None:
    """Erase a log that has no topics, is closed, and is still locked (steps 2 and 3).

    After an `OSError`, open the directory again.
    """
    files.rename(layout.meta, layout.removed_meta)
    files.sync_dir(layout.root)
    _finish_erasure(files, layout)


def _is_being_erased(files: Files, layout: Layout) -> bool:
    """Tell whether an erasure did step 2 and has not finished step 3."""
    return files.is_dir(layout.removed_meta)


def _finish_erasure(files: Files, layout: Layout) -> None:
    """Remove the remaining files of the log (step 3)."""
    for folder in (layout.wal, layout.topics):
        if files.is_dir(folder):
            _empty(files, folder)
            files.remove_dir(folder)
    files.sync_dir(layout.root)
    _empty(files, layout.removed_meta)
    files.remove_dir(layout.removed_meta)
    files.sync_dir(layout.root)


def _empty(files: Files, folder: Path) -> None:
    for name in files.list_dir(folder):
        path = folder / name
        if files.is_dir(path):
            _empty(files, path)
            files.remove_dir(path)
        else:
            files.unlink(path)
