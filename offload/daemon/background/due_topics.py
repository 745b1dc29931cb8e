"""The look at all topics, which finds those whose offload is due."""

from __future__ import annotations

from dataclasses import replace

from offload.archive import Archive
from offload.daemon.background.context import TaskContext
from offload.daemon.background.disk_watch import DiskWatch
from offload.daemon.background.rests import Rest, Rests
from offload.daemon.background.topic_work import TopicWork
from offload.daemon.background.triggers import Backlog, Due, Policy, due, next_due_ms, policy_of
from offload.daemon.disk import DiskState
from seglog import NoSuchTopic, Topic

__all__ = ["DueTopics"]


class DueTopics:
    """The topics of one archive that are due. One thread at a time looks."""

    def __init__(self, context: TaskContext, archive: Archive, disk: DiskWatch) -> None:
        self._context = context
        self._archive = archive
        self._disk = disk
        self._rests = Rests()

    def find(self) -> list[tuple[str, Due]]:
        """Return each topic that is due now, with its offload. Skip a topic that rests, runs or waits."""
        context, works = self._context, self._context.works
        found = []
        versions, offload_versions = context.log.versions(), self._archive.status.versions()
        works.keep(versions.keys(), self._archive.replication.replicas)
        now_ms = context.now_ms()
        self._rests.begin_pass(versions.keys(), context.settings().offload, self._disk.state)
        for name, changes in sorted(versions.items()):
            version = (*changes, offload_versions.get(name, 0))
            if self._rests.lasts(name, version, now_ms):
                continue
            work = works.of(name)
            if work.is_running or work.wait_ms(context.now_ms()):
                continue
            try:
                wanted = self._due(name, work, version)
            except NoSuchTopic:  # deleted meanwhile
                continue
            except Exception as error:
                works.put_off(name, error)
                continue
            if wanted is not None:
                found.append((name, wanted))
        return found

    def _due(self, name: str, work: TopicWork, version: tuple[object, ...]) -> Due | None:
        """Return the offload that is due. If there is none, the topic rests."""
        topic, status, now_ms = self._context.log.topic(name), self._archive.status, self._context.now_ms()
        if status.is_paused(name) or status.is_diverged(name) or topic.config.durability == "ephemeral":
            self._rests.put(name, Rest(version, now_ms, None))
            return None
        backlog, policy = self._backlog(name, topic, work), self._policy(topic)
        wanted = due(backlog, policy, now_ms)
        if wanted is None:
            self._rests.put(name, Rest(version, now_ms, next_due_ms(backlog, policy)))
        return wanted

    def _backlog(self, name: str, topic: Topic, work: TopicWork) -> Backlog:
        status = self._archive.status
        offloaded_seq, sealed_seq, head_seq = status.offloaded_seq(name), topic.sealed_seq, topic.head_seq
        if head_seq <= sealed_seq:
            work.unsealed_since_ms = None
        elif work.unsealed_since_ms is None or work.unsealed_from_seq <= sealed_seq:
            work.unsealed_since_ms, work.unsealed_from_seq = self._context.now_ms(), sealed_seq + 1
        return Backlog(
            sealed=[segment for segment in topic.segments() if segment.sealed and segment.last_seq > offloaded_seq],
            offloaded_seq=offloaded_seq,
            head_seq=head_seq,
            unsealed_since_ms=work.unsealed_since_ms,
            is_unfinished=status.is_unfinished(name),
        )

    def _policy(self, topic: Topic) -> Policy:
        policy = policy_of(self._context.settings().offload, topic.config.attributes)
        is_fine = self._disk.state is DiskState.FINE
        return policy if is_fine else replace(policy, after_ms=0, hot_bytes=0)
