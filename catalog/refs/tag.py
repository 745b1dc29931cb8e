"""Tags: names for points in a topic's history. GC keeps a tagged state, whatever its age.

A tag never moves: a name means one state until the tag is deleted. The object of a deleted tag stays, with the time of
the deletion, and the name is free. The next tag of this name replaces the object by compare-and-swap.

The local catalog keeps the tags that were made or listed here, for the completion of names. Nothing else reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from catalog.errors import KeyChanged, NoSuchTag, OutOfWindow, TagExists
from catalog.format.commit import ForkPoint
from catalog.format.control import Tag
from catalog.format.keys import Key, branch_of, named_by, tag_key, tags_prefix, topic_of
from catalog.format.small_objects import decode_tag, encode_tag
from catalog.refs.beside_gc import check_kept
from catalog.refs.oplog import Oplog
from catalog.refs.ref_store import Found, RefStore, is_same
from catalog.volume import Volumes
from seglog.base.arguments import checked

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
        self._tags = RefStore(volumes.store, Oplog(volumes.store, writer_id), encode_tag, decode_tag)

    @checked
    def create(self, topic: str, name: str, point: ForkPoint, *, branch: str, now_ms: int, message: str = "") -> Tag:
        """Put a tag on `point` and return it.

        Raises `TagExists`, and `OutOfWindow` if the point is not kept any more.
        """
        key = tag_key(topic, name)
        found = self._tags.read_current(key)
        if found.alive is not None:
            raise TagExists(topic, name)

        def named(tag: Tag | None) -> Tag:
            if tag is not None and tag.deleted_at_ms is None:
                raise TagExists(topic, name)
            return Tag(point, branch, now_ms, message)

        return self._hold("tag create", key, found, named, point, now_ms=now_ms, message=message)

    @checked
    def get(self, topic: str, name: str) -> Tag:
        """Return the tag. Raises `NoSuchTag`."""
        tag = self._tags.read_current(tag_key(topic, name)).alive
        if tag is None:
            raise NoSuchTag(topic, name)
        return tag

    @checked
    def list(self, topic: str) -> list[NamedTag]:
        """Return the tags of the topic that are not deleted, ascending by name."""
        keys = [key for key in self._store.list(tags_prefix(topic)) if named_by(key)]
        found = [(key, decode_tag(self._store.get(Key(key)), key)) for key in keys]
        alive = {key: tag for key, tag in found if tag.deleted_at_ms is None}
        if self._volumes.cache is not None:
            bodies = {key: encode_tag(tag) for key, tag in alive.items()}
            self._volumes.cache.replace_objects(tags_prefix(topic), bodies)
        return [NamedTag(branch_of(key), tag) for key, tag in alive.items()]

    @checked
    def delete(self, topic: str, name: str, *, now_ms: int) -> Tag:
        """Delete the tag and return its former value.

        GC deletes the state if nothing else holds it. Raises `NoSuchTag`.
        """
        key = tag_key(topic, name)
        found = self._tags.read_current(key)
        if found.alive is None:
            raise NoSuchTag(topic, name)
        self._delete("tag delete", key, found, now_ms=now_ms)
        return found.alive

    def put_back(self, key: Key, former: Tag | None, value: Tag, *, now_ms: int, message: str) -> None:
        """Undo: replace `value` by `former`. If `former` is None or a deleted tag, delete the tag.

        Raises `KeyChanged`, and `OutOfWindow` if the state of `former` is not kept any more.
        """
        found = self._tags.read_current(key)
        if not is_same(found.value, value):
            raise KeyChanged(key)
        if former is None or former.deleted_at_ms is not None:
            self._delete("undo", key, found, now_ms=now_ms, message=message)
        else:
            again = former
            self._hold("undo", key, found, lambda _: again, former.point, now_ms=now_ms, message=message)

    # ------------------------------------------------------------ inside

    def _hold(
        self,
        operation: str,
        key: Key,
        found: Found[Tag],
        make: Callable[[Tag | None], Tag],
        point: ForkPoint,
        *,
        now_ms: int,
        message: str,
    ) -> Tag:
        """Replace `found` by the tag that `make` returns. Check before and after the change that `point` is kept."""
        check_kept(self._volumes, point)
        tag = self._tags.change(operation, key, make, now_ms=now_ms, message=message, found=found)
        assert tag is not None  # noqa: S101 - `make` makes one
        try:
            check_kept(self._volumes, point)
        except OutOfWindow:
            found = self._tags.read_current(key)
            if found.value == tag:
                self._delete("tag delete", key, found, now_ms=now_ms)
            raise
        if self._volumes.cache is not None:
            self._volumes.cache.put_object(key, encode_tag(tag))
        return tag

    def _delete(self, operation: str, key: Key, found: Found[Tag], *, now_ms: int, message: str = "") -> None:
        def deleted(tag: Tag | None) -> Tag | None:
            if tag is None:
                raise NoSuchTag(topic_of(key), branch_of(key))
            return tag if tag.deleted_at_ms is not None else replace(tag, deleted_at_ms=now_ms)

        self._tags.change(operation, key, deleted, now_ms=now_ms, message=message, found=found)
        if self._volumes.cache is not None:
            self._volumes.cache.drop_object(key)
