"""Taking a deleted topic's directory away, after its TOPIC_DELETE frame.

    1 frame      TOPIC_DELETE, durable: the name is free, and what comes under it gets a new id and a higher epoch
    2 snapshot   of the next checkpoint: without the topic, with its id among the deleted ones
    3 rename     topics/<id> to topics/<id>.deleted, durably
    4 unlink     what is in it, and the directory

Before 2 nothing has changed but the WAL. From 2 on a directory of that id is known to be nobody's, so a crash anywhere
leaves what recovery takes away by the same steps; a directory that no snapshot speaks of stays and is reported.
"""

from __future__ import annotations

from pathlib import Path

from seglog.files.port import Files
from seglog.values.layout import Layout

__all__ = ["remove_leftovers", "remove_topics"]


def remove_topics(files: Files, layout: Layout, topic_ids: tuple[int, ...]) -> None:
    """Steps 3 and 4. Raises `OSError`; repeat it then."""
    names = {*files.list_dir(layout.topics)} if topic_ids else set()
    there = [topic_id for topic_id in topic_ids if layout.topic(topic_id).name in names]
    for topic_id in there:
        files.rename(layout.topic(topic_id), layout.deleted_topic(topic_id))
    if there:
        files.sync_dir(layout.topics)
    for topic_id in there:
        _remove(files, layout.deleted_topic(topic_id))


def remove_leftovers(files: Files, layout: Layout) -> None:
    """Step 4, where it did not come to its end."""
    for name in files.list_dir(layout.topics):
        if layout.is_deleted_topic(name):
            _remove(files, layout.topics / name)


def _remove(files: Files, directory: Path) -> None:
    for name in files.list_dir(directory):
        files.unlink(directory / name)
    files.remove_dir(directory)
