"""What a position in a topic is worth now: after truncations, restarts, and in another directory (CURSORS-2 to -5)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from seglog.delivery.cursor import Cursor
from seglog.errors import NoSuchTopic
from seglog.log import Log


def change_of(log: Log, cursor: Cursor) -> tuple[int | None, int, str] | None:
    """Return the first seq that the cursor no longer knows, or None; and the epoch and incarnation of the topic now.

    Return None if the cursor has ended with its topic (CURSORS-2).
    """
    topic = log.topic(cursor.topic)
    try:
        here = topic.inner.known_incarnation()
        epoch, cut = topic.inner.changed_since(cursor.epoch)
    except NoSuchTopic:
        return None
    if here == cursor.incarnation:
        return cut, epoch, here or ""
    if here is not None and _log_of(here) == _log_of(cursor.incarnation):
        return None
    return topic.first_seq, epoch, here or ""


def as_of_now(log: Log, cursor: Cursor) -> Cursor | None:
    """Return the cursor for the topic as it is; None if that is gone (CURSORS-2, CURSORS-3, CURSORS-4)."""
    change = change_of(log, cursor)
    if change is None:
        return None
    cut, epoch, incarnation = change
    return cursor if cut is None else replace(cursor.cut(cut, epoch), incarnation=incarnation)


def is_foreign(log: Log, cursor: Cursor, states: str) -> bool:
    """Return whether another directory wrote the state of the cursor, which is a record of the topic `states`."""
    for name in (states, cursor.topic):
        with suppress(NoSuchTopic):
            here = log.topic(name).inner.known_incarnation()
            return here is None or _log_of(cursor.incarnation) != _log_of(here)
    return True


def is_sharded(log: Log) -> bool:
    """Return whether `storable` may wait for a sync."""
    shards: int = log.settings.wal_shards
    return shards > 1


def storable(log: Log, cursor: Cursor) -> Cursor:
    """Return what a record of a cursor may say (CURSORS-5), with the time as of which it says it (CURSORS-4)."""
    topic = log.topic(cursor.topic)
    ts_ms = topic.last_ts_ms
    is_now = topic.epoch == cursor.epoch  # else the former time stays, which is before the truncation
    if is_sharded(log):
        topic.inner.sync()
    logged_seq = topic.inner.logged_seq
    if logged_seq < topic.head_seq:  # a crash takes the last time, too, and a truncation may then have an earlier one
        return cursor.cut(logged_seq + 1, cursor.epoch)
    return replace(cursor, ts_ms=ts_ms) if is_now else cursor


def _log_of(incarnation: str) -> str:
    """Return the id of the log in an incarnation."""
    return incarnation.partition("-")[0]
