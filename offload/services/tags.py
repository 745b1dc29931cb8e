"""`archive.tags`: names for points in the history of a topic, which GC keeps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from catalog.errors import NoSuchBranch, NoSuchTag, TagExists
from catalog.format.control import Tag
from catalog.refs.tag import NamedTag
from offload.context import ArchiveContext
from offload.handles import split_name
from seglog.base.arguments import checked
from seglog.base.ownership import Owned

if TYPE_CHECKING:
    from offload.services.offloading import Offloading

__all__ = ["TagService"]


class TagService(Owned):
    """The calls about tags."""

    def __init__(self, context: ArchiveContext, offloading: Callable[[], Offloading]) -> None:
        self._log = context.log
        self._tags = context.tags
        self._handles = context.handles
        self._clock = context.clock
        self._offloading = offloading

    @checked
    def tag(self, topic: str, name: str, *, to: str = "head", message: str = "") -> Tag:
        """Name a point of the topic, so that GC keeps it. `topic` may also be a branch, as TOPIC@BRANCH.

        If the remote lacks the point, the call seals and offloads the topic once. Raises `TagExists`, and what
        `Archive.restore` raises.
        """
        self._log.check_writable()
        base, branch = split_name(topic)
        point = self._offloading().keep_point(topic, to, lambda: self._check_free(base, name))
        return self._tags.create(base, name, point, branch=branch, now_ms=self._clock.now_ms(), message=message)

    def _check_free(self, topic: str, name: str) -> None:
        with suppress(NoSuchTag):
            self._tags.get(topic, name)
            raise TagExists(topic, name)

    @checked
    def list(self, topic: str) -> list[NamedTag]:
        """Return the tags of a topic, by name. Raises `NoSuchTopic`."""
        found = self._tags.list(topic)
        if not found and not self._log.has_topic(topic) and self._handles.find(topic) is None:
            with suppress(NoSuchBranch):  # a topic with branches and no main
                self._handles.resolve(topic)
        return found

    @checked
    def delete_tag(self, topic: str, name: str) -> Tag:
        """Delete a tag of the topic. Raises `NoSuchTag`."""
        self._log.check_writable()
        return self._tags.delete(topic, name, now_ms=self._clock.now_ms())
