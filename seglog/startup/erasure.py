"""Erasure of a whole log from the disk.

    1 topics    The caller deletes each topic, as for a single topic. The warm stores drop the topic's segments.
    2 rename    meta/ becomes meta.removed/, durably. From here on there is no log. If a process opens the directory, it
                first finishes step 3.
    3 unlink    The write-ahead log and the topics folder are removed, and meta.removed/ last.

A crash before step 2 leaves a log with fewer topics. seglog.toml, LOCK and files that are not the log's stay.
"""

from __future__ import annotations

from pathlib import Path

from seglog.files.port import Files
from seglog.values.layout import Layout

__all__ = ["erase", "finish_erasure", "is_being_erased"]


def erase(files: Files, layout: Layout) -> None:
    """Erase a log that has no topics, is closed, and is still locked (steps 2 and 3).

    After an `OSError`, open the directory again.
    """
    files.rename(layout.meta, layout.removed_meta)
    files.sync_dir(layout.root)
    finish_erasure(files, layout)


def is_being_erased(files: Files, layout: Layout) -> bool:
    """Tell whether an erasure did step 2 and has not finished step 3."""
    return files.is_dir(layout.removed_meta)


def finish_erasure(files: Files, layout: Layout) -> None:
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
