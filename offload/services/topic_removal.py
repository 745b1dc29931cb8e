"""The removal of a whole topic from this directory."""

from __future__ import annotations

from dataclasses import replace

from offload.context import ArchiveContext
from offload.errors import TopicAttached
from offload.replication.replica import Replicas
from offload.replication.reset import Reset
from offload.services.results import TopicGone
from offload.services.writers import Writers
from offload.write.offloader import Offloader

__all__ = ["TopicRemoval"]


class TopicRemoval:
    def __init__(
        self, context: ArchiveContext, writers: Writers, offloader: Offloader, replicas: Replicas, reset: Reset
    ) -> None:
        self._log = context.log
        self._handles = context.handles
        self._locks = context.locks
        self._writers = writers
        self._offloader = offloader
        self._replicas = replicas
        self._reset = reset

    def run(self, name: str, *, detach: bool, discard: bool) -> TopicGone:
        self._log.check_writable()
        if self._replicas.is_replica(name):
            with self._locks.of(name):
                lsn = self._handles.follow(name).lsn
                self._replicas.forget(name)
            return TopicGone("unfollowed", lsn)
        topic = self._log.get_topic(name)
        with self._locks.of(name):
            if self._handles.find(name) is not None:
                if not detach:
                    raise TopicAttached(name)
                if not discard:
                    self._writers.open(name)
                    topic.seal()
                    self._offloader.run(name)
                result = self._reset.run(self._handles.follow(name), discard=discard)
                self._replicas.forget(name)
                kept_lsn = result.lsn if result.is_followed else None
                return TopicGone("detached", kept_lsn, result.changes.records, result.changes.deletes)
            self._log.configure(name, replace(topic.config, keep_history=False))
            self._log.delete_topic(name)
            return TopicGone("deleted", None)
