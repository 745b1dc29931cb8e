"""Taking a whole log off the disk.

    1 topics    each is deleted, as by itself; what they had in cold stores is let go
    2 rename    meta/ to meta.removed/, durably: from here on there is no log, and whoever opens the directory goes on
                with 3 before anything else
    3 unlink    the write-ahead log and the folders, and meta.removed/ last

A crash before 2 leaves a log with fewer topics. seglog.toml, LOCK, and what is not the log's stay.
"""

from __future__ import annotations

from pathlib import Path

from seglog.files.port import Files
from seglog.values.layout import Layout

__all__ = ["erase", "finish_erasure", "is_being_erased"]


def erase(files: Files, layout: Layout) -> None:
    """Steps 2 and 3, of a log without topics that is closed and still locked. Raises `OSError`; open it then."""
    files.rename(layout.meta, layout.removed_meta)
    files.sync_dir(layout.root)
    finish_erasure(files, layout)


def is_being_erased(files: Files, layout: Layout) -> bool:
    return files.is_dir(layout.removed_meta)


def finish_erasure(files: Files, layout: Layout) -> None:
    """Step 3."""
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
