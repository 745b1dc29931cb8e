"""The writer's side of a topic: its handle and its topic in the log, after a takeover if one is needed."""

from __future__ import annotations

from catalog import MAIN, Handle
from offload.context import ArchiveContext
from offload.handles import split_name
from offload.replication.replica import Replicas
from offload.replication.takeover import Takeover
from seglog import Topic

__all__ = ["Writers"]


class Writers:
    def __init__(self, context: ArchiveContext, replicas: Replicas, takeover: Takeover) -> None:
        self._log = context.log
        self._handles = context.handles
        self._locks = context.locks
        self._replicas = replicas
        self._takeover = takeover

    def open(self, name: str) -> Handle:
        """Return the writer's handle for a topic of the log. If this directory is not the writer yet, take the volume
        over. The caller holds the lock of the topic.
        """
        handle = self._handles.open(name)
        return handle if self._handles.is_writer(handle) else self._takeover.run(name)

    def topic(self, name: str) -> Topic:
        """Return the topic of the log that takes appends for `name` (`Archive.open_for_append`)."""
        self._log.check_writable()
        if self._is_to_take_over(name):
            with self._locks.of(name):
                if self._is_to_take_over(name):  # it may have been detached meanwhile, or be here
                    self._takeover.run(name)
        return self._log.topic(name)

    def _is_to_take_over(self, name: str) -> bool:
        if self._log.has_topic(name):
            return False
        return name in self._log.elsewhere or self._replicas.is_replica(name) or split_name(name)[1] != MAIN
