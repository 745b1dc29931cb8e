"""Tags: names for points in a topic's history. GC keeps what they name, however old.

Tags are never moved: a name means one state for good, until it is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.commit import ForkPoint
from catalog.control import Tag
from catalog.errors import NoSuchObject, NoSuchTag, OutOfWindow, TagExists
from catalog.holds import check_kept
from catalog.keys import Key, branch_of, tag_key, tags_prefix
from catalog.oplog import Oplog
from catalog.put_once import put_once
from catalog.small_objects import decode_tag, encode_tag
from catalog.volume import Volumes

__all__ = ["NamedTag", "Tags"]


@dataclass(frozen=True, slots=True)
class NamedTag:
    name: str
    tag: Tag


class Tags:
    """The tags under one prefix. Safe to use from many threads. Every method may raise `InvalidName`."""

    def __init__(self, volumes: Volumes, writer_id: str = "") -> None:
        self._volumes = volumes
        self._store = volumes.store
        self._oplog = Oplog(volumes.store, writer_id)

    def create(self, topic: str, name: str, point: ForkPoint, *, branch: str, now_ms: int, message: str = "") -> Tag:
        """Raises `TagExists`, and `OutOfWindow` if the point is not kept any more."""
        key = tag_key(topic, name)
        tag = Tag(point, branch, now_ms, message)
        body = encode_tag(tag)
        check_kept(self._volumes, point)
        self._oplog.note("tag create", key, None, body, now_ms=now_ms, message=message)
        if put_once(self._store, key, body) != body:
            raise TagExists(topic, name)
        try:
            check_kept(self._volumes, point)
        except OutOfWindow:
            self.delete(topic, name, now_ms=now_ms)
            raise
        return tag

    def get(self, topic: str, name: str) -> Tag:
        """Raises `NoSuchTag`."""
        key = tag_key(topic, name)
        try:
            return decode_tag(self._store.get(key), key)
        except NoSuchObject:
            raise NoSuchTag(topic, name) from None

    def list(self, topic: str) -> list[NamedTag]:
        """Ascending by name."""
        return [
            NamedTag(branch_of(key), decode_tag(self._store.get(Key(key)), key))
            for key in self._store.list(tags_prefix(topic))
        ]

    def delete(self, topic: str, name: str, *, now_ms: int) -> Tag:
        """What it named goes when GC finds nothing else that holds it. Raises `NoSuchTag`."""
        tag = self.get(topic, name)
        key = tag_key(topic, name)
        self._oplog.note("tag delete", key, encode_tag(tag), None, now_ms=now_ms)
        self._store.delete(key)
        return tag
