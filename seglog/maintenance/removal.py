"""Remove the directory of a deleted topic, after its TOPIC_DELETE frame.

    1 frame      The writer makes a TOPIC_DELETE frame durable. The name is free. A later topic of this name gets a new
                 id and a higher epoch.
    2 manifest   The next checkpoint stores a manifest without the topic, with its id among the deleted ones.
    3 rename     The checkpoint renames topics/<id> to topics/<id>.deleted, durably.
    4 unlink     The checkpoint unlinks the files in it, and removes the directory.

Before 2, only the WAL has changed. From 2 on, the manifest says that no topic owns the directory. So a crash leaves
only files that recovery removes by the same steps. If the manifest does not mention a directory whose id was already
assigned, recovery leaves it and reports it.
"""

from __future__ import annotations

from pathlib import Path

from seglog.files.port import Files
from seglog.values.layout import Layout

__all__ = ["remove_leftovers", "remove_topics"]


def remove_topics(files: Files, layout: Layout, topic_ids: tuple[int, ...]) -> None:
    """Run steps 3 and 4. Raises `OSError`. After that, the caller may call it again."""
    names = {*files.list_dir(layout.topics)} if topic_ids else set()
    there = [topic_id for topic_id in topic_ids if layout.topic(topic_id).name in names]
    for topic_id in there:
        files.rename(layout.topic(topic_id), layout.deleted_topic(topic_id))
    if there:
        files.sync_dir(layout.topics)
    for topic_id in there:
        _remove(files, layout.deleted_topic(topic_id))


def remove_leftovers(files: Files, layout: Layout) -> None:
    """Complete step 4 for the directories that a crash left renamed."""
    for name in files.list_dir(layout.topics):
        if layout.is_deleted_topic(name):
            _remove(files, layout.topics / name)


def _remove(files: Files, directory: Path) -> None:
    for name in files.list_dir(directory):
        files.unlink(directory / name)
    files.remove_dir(directory)
