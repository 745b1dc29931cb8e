"""The cursors of a log, in memory and in the topic `_seglog.cursors` (seglog.delivery.cursor).

    1  The first user loads them: the newest record of each cursor counts (seglog.delivery.keyed_topic).
    2  Who changes a cursor claims it, makes the new state of the one that is here, and appends it, durably.
    3  The new state takes the place of the former one, and the claim ends. After an error the former state stays.

CURSORS-1  A change is in memory only once its record is durable. So a failed append changes nothing, and no change is
    computed from a state that may be lost. One change of a cursor at a time, so none loses what another one acked.
CURSORS-2  A cursor counts for one topic of one log (`Topic.incarnation`). If the topic is deleted, or made again, the
    cursor has ended, and a compaction leaves it out.
CURSORS-3  A truncation shows when the cursor is next looked at, by its epoch, and is stored with the next change. The
    log knows a truncation exactly as long as it is open; after a restart, such a cursor begins at 1: its reader gets
    all records again, and misses none. So the daemon stores truncated cursors at its next look (`keep_up`).
CURSORS-4  A cursor from another directory, as after a recovery from the remote, counts up to the records that the topic
    had when this directory took it over, and below each truncation in the history of that topic which is not older than
    its state. The seqs behind them may be other records here. Both times are of the topic, which never go back. A
    truncation of the same millisecond counts as later: then the reader gets records again, and misses none. If another
    branch became main since its state, the cursor begins at 1.
CURSORS-5  A record of a cursor says only what is true after a crash, because later records get the seqs of those that
    the crash takes: nothing of ephemeral records at the head, so neither their time, and what another shard of the WAL
    has is synced first.
CURSORS-6  A compaction goes on beside changes. It claims each cursor that there was, or was in the making, when it
    began, and appends its state behind all records that go. So no older state comes behind a newer one.

Thread-safe: the event loop of a daemon and the threads of its commands share the object of their log (`of`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from seglog.base.errors import Conflict, Corrupt, Missing
from seglog.delivery.claims import Claims
from seglog.delivery.cursor import TOPIC, Cursor, decode_cursor, encode_cursor, key_of
from seglog.delivery.keyed_topic import KeyedTopic
from seglog.delivery.positions import as_of_now, is_foreign, is_sharded, storable
from seglog.errors import AppendsHeld, DiskFull, InvalidArgument, SeqOutOfRange
from seglog.log import Log
from seglog.values.record import Record

MOST_CURSORS = 1_000
"""The cursors of one log. They are labels of metrics, so there is a bound."""

Cut = Callable[[Cursor], int | None]
"""Takes a cursor of another directory. Returns the lowest seq that may be another record since its `ts_ms`, or None."""


class CursorStates(Claims):
    """The cursors of one log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = weakref.proxy(log)  # the register of `of` ends with the log
        self._states: dict[str, Cursor] = {}
        self._keyed = self._new_replay(lambda _: None)
        self._loading = threading.Lock()
        self._changes = 0
        self.is_loaded = False

    @classmethod
    def of(cls, log: Log) -> CursorStates:
        """Return the object that all users of an open log share."""
        with _making:
            found = _by_log.get(log)
            if found is None:
                found = _by_log[log] = cls(log)
            return found

    @staticmethod
    def _new_replay(report: Callable[[str], None]) -> KeyedTopic[Cursor]:
        return KeyedTopic(TOPIC, _keyed_cursor, report)

    def load(
        self,
        records: Callable[[], Iterable[Record]],
        report: Callable[[str], None] = lambda _: None,
        cut: Cut = lambda _cursor: None,
        delete: Callable[[int], object] | None = None,
        *,
        is_followed: bool = False,
    ) -> None:
        """Take the newest state of each cursor from `records`, once, and compact the topic if it is time.

        While this log does not write the topic, and it `is_followed`, each call takes all states anew. Without
        `delete`, as in a log that is open for reading only, nothing is compacted.
        """
        with self._loading:
            while not self.is_loaded:
                changes, is_own = self._changes, self._log.has_topic(TOPIC)
                states, keyed = self._replayed(records(), report, cut)
                with self._room:
                    if self._changes == changes:  # else a first record came meanwhile
                        self._states, self._keyed = states, keyed
                        self.is_loaded = is_own or not is_followed
                        break
        if delete is not None:
            self.keep_up(delete)

    def _replayed(
        self, records: Iterable[Record], report: Callable[[str], None], cut: Cut
    ) -> tuple[dict[str, Cursor], KeyedTopic[Cursor]]:
        states: dict[str, Cursor] = {}
        keyed = self._new_replay(report)

        def forget(key: str) -> None:
            states.pop(key, None)

        keyed.replay(records, lambda cursor: _take(states, cursor), forget)
        for key, cursor in states.items():
            seq = cut(cursor) if self._is_foreign(cursor) else None
            states[key] = cursor if seq is None else cursor.cut(seq, cursor.epoch)
        return states, keyed

    def keep_up(self, delete: Callable[[int], object]) -> None:
        """Store the cursors that a truncation has lowered, and compact the topic if it is time (CURSORS-3, CURSORS-6).

        `delete` takes the first seq that stays. Without room, a later call does so.
        """
        if not self.is_loaded or not self._log.has_topic(TOPIC):
            return
        with self._loading, suppress(AppendsHeld, DiskFull):
            for key, seen in tuple(self._states.items()):
                if self._cut_now(seen) is not None:
                    with self.claimed(key):
                        cut = self._cut_now(self._states.get(key))
                        if cut is not None:
                            self.put(cut)
            if self._keyed.is_outdated(len(self._states)):
                self._compact(delete)

    def _cut_now(self, cursor: Cursor | None) -> Cursor | None:
        """Return the cursor as of now, if a truncation has changed it and no record says so; else None."""
        now = None if cursor is None else self._now(cursor)
        if cursor is None or now is None or now.incarnation != cursor.incarnation or now.epoch == cursor.epoch:
            return None
        return now

    def _compact(self, delete: Callable[[int], object]) -> None:
        """Append each state, forget the cursors of topics that are gone, and delete the records before that."""
        topic, count = self._log.topic(TOPIC), 0
        first = topic.head_seq + 1
        with self._room:
            keys = {*self._states, *self._claimed}
        try:
            for key in sorted(keys):
                with self.claimed(key):
                    cursor = self._states.get(key)
                    if cursor is None:
                        continue
                    if self._is_foreign(cursor):
                        topic.append([encode_cursor(cursor)], tag=key, durability="fsync")
                    elif self._now(cursor) is not None:
                        topic.append([encode_cursor(self.storable(cursor))], tag=key, durability="fsync")
                    else:
                        del self._states[key]
                        continue
                    count += 1
            delete(first)
        finally:
            self._keyed.records = count  # also after an error, so that the next try is not at once

    # ------------------------------------------------------------ looks

    def find(self, topic: str, name: str) -> Cursor:
        """Return a cursor as of now. Raise `NoSuchTopic`, `Missing`, and `Corrupt` for an unreadable state."""
        key = key_of(topic, name)
        if key in self._keyed.unreadable:
            record = f"record {self._keyed.unreadable[key]} of {TOPIC}"
            text = f"the state of the cursor {key} is unknown: {record} is no cursor of this version"
            raise Corrupt(text, hint="use the directory with the version that wrote the record")
        stored = self._states.get(key)
        cursor = None if stored is None else self._now(stored)
        if cursor is None:
            self._log.get_topic(topic)
            hint = f"`seglog cursor create {topic} {name}` makes it, `seglog cursor list {topic}` lists them"
            raise Missing(f"topic {topic} has no cursor {name}", hint=hint)
        return cursor

    def has(self, topic: str, name: str) -> bool:
        """Return whether there is such a cursor, also one whose state is unreadable."""
        key = key_of(topic, name)
        stored = self._states.get(key)
        return key in self._keyed.unreadable or (stored is not None and self._now(stored) is not None)

    def all(self, topic: str | None = None) -> list[Cursor]:
        """Return the cursors of a topic, or of all, as of now, by their names."""
        now = [self._now(cursor) for cursor in tuple(self._states.values())]
        there = (cursor for cursor in now if cursor is not None and topic in {None, cursor.topic})
        return sorted(there, key=lambda cursor: (cursor.topic, cursor.name))

    def is_stored(self, cursor: Cursor) -> bool:
        """Return whether the newest record of the cursor says the same."""
        return self._states.get(cursor.key) == cursor

    def _is_foreign(self, cursor: Cursor) -> bool:
        """Return whether another directory wrote the state of the cursor."""
        return is_foreign(self._log, cursor, TOPIC)

    def _now(self, cursor: Cursor) -> Cursor | None:
        return as_of_now(self._log, cursor)

    # ------------------------------------------------------------ changes

    def check_room(self) -> None:
        """Raise `Conflict` if the log has as many cursors as it takes."""
        if len(self._states) >= MOST_CURSORS and len(self.all()) >= MOST_CURSORS:
            text = f"this directory has {MOST_CURSORS:,} cursors, and takes no more"
            raise Conflict(text, hint="`seglog cursor delete TOPIC NAME` deletes one")

    def acked(self, cursor: Cursor, seqs: Sequence[int], epoch: int) -> Cursor:
        """Return the cursor with an ack in it. Raise `Conflict`, `SeqOutOfRange`, `InvalidArgument`: none of it counts.

        `cursor` is what `find` has returned.
        """
        if epoch != cursor.epoch:
            text = f"{cursor.topic} is in epoch {cursor.epoch}, and the ack is of epoch {epoch}; nothing was acked"
            hint = f"the seqs may mean other records since then: continue behind seq {cursor.floor} of this epoch"
            raise Conflict(text, hint=hint)
        if len(seqs):
            is_range = isinstance(seqs, range) and seqs.step == 1
            least, most = (seqs[0], seqs[-1]) if is_range else (min(seqs), max(seqs))
            head_seq = self._log.topic(cursor.topic).head_seq
            if least < 1:
                raise InvalidArgument("seqs", least, "the seqs of records, which begin at 1")
            if most > head_seq:
                raise SeqOutOfRange(cursor.topic, most, 1, head_seq)
        return cursor.acked(seqs)

    @property
    def is_sharded(self) -> bool:
        """Return whether `storable` may wait for a sync."""
        return is_sharded(self._log)

    def storable(self, cursor: Cursor) -> Cursor:
        """Return what a record of a cursor may say (CURSORS-5)."""
        return storable(self._log, cursor)

    def put(self, cursor: Cursor) -> Cursor:
        """Append the state of a claimed cursor, durably, and take it. Raise what an append raises, with no change."""
        own = replace(cursor, incarnation=cursor.incarnation or self._log.topic(cursor.topic).incarnation())
        topic, value = self._log.topic(TOPIC), encode_cursor(self.storable(own))
        topic.append([value], tag=own.key, durability="fsync")
        self.take(own)
        return own

    def take(self, cursor: Cursor) -> None:
        """Let a state count that is durable now."""
        with self._room:
            self._changes += 1
            self._keyed.records += 1
            _take(self._states, cursor)


def _take(states: dict[str, Cursor], cursor: Cursor) -> None:
    if cursor.is_deleted:
        states.pop(cursor.key, None)
    else:
        states[cursor.key] = cursor


def _keyed_cursor(record: Record) -> tuple[str, Cursor]:
    cursor = decode_cursor(record.value, record.tag)
    return cursor.key, cursor


_making = threading.Lock()
_by_log: weakref.WeakKeyDictionary[Log, CursorStates] = weakref.WeakKeyDictionary()
