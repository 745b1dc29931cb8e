"""Programs that work with any carrier: a log in the process, or the client of a daemon. mypy checks them strictly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import seglog
from seglog import Gap, Record
from seglog.values.protocols import AnyArchive, AnyAsyncLog, AnyAsyncTopic, AnyLog, AnyTopic, Bounds

if TYPE_CHECKING:
    from offload import Archive
    from seglog.aio import AsyncLog, AsyncTopic
    from seglog.client import Client, RemoteArchive
    from seglog.client.aio import AsyncClient, AsyncRemoteTopic

__all__ = ["archive_history", "history", "history_in_loop"]


def history(log: AnyLog, name: str) -> list[object]:
    """Return the result of each call of a topic's life."""
    topic: AnyTopic = log.topic(name)
    told: list[object] = [topic.name, topic.append([b"one", b"two"], tag="eu"), topic.append([], tag="eu")]
    told += [topic.append_once([b"three"], tag="us-1", key="k"), topic.append_once([b"three"], tag="us-1", key="k")]
    batch = seglog.ProducerBatch("p", 1, 0)
    told += [topic.append_once([b"four", b"five"], producer=batch, node="n", unterminated=True, durability="fsync")]
    told += [topic.append_once([b"four", b"five"], producer=batch), topic.append([b"six"], if_head=5)]
    for condition in ("head", "incarnation"):
        try:
            if condition == "head":
                topic.append([b"x"], if_head=2)
            else:
                topic.append([b"x"], if_incarnation="another")
        except (seglog.HeadMoved, seglog.OtherIncarnation) as error:
            told.append(type(error))
    records: list[Record] = list(topic.read())
    items: list[Record | Gap] = list(topic.read(gaps=True))
    told += [[_plain(item) for item in records], [_plain(item) for item in items]]
    times = [record.ts_ms for record in records]
    told += [[record.seq for record in topic.read(2, 5, tag="us*", limit=9)]]
    told += [[record.seq for record in topic.read(limit=2)], [record.seq for record in topic.read(limit=0)]]
    told += [[record.seq for record in topic.read(since_ms=times[-1], until_ms=times[-1] + 1)][-1:]]
    told += [topic.read_arrow(2, 3, tag="eu", text=True).read_all().to_pydict()["value"]]
    told += [[record.seq for record in topic.follow(4, timeout_s=0.05)]]
    told += [[record.seq for record in topic.follow(tag="us-1", timeout_s=0.05)]]
    topic.delete(seqs=[1, 3], epoch=topic.bounds().epoch)
    told += [[record.seq for record in topic.read()]]
    topic.delete(grep="^f", start=5, since_ms=times[0], until_ms=times[-1])
    told += [[record.seq for record in topic.read()]]
    topic.delete(since_ms=times[-1] + 60_000)
    topic.evict(3)
    told += [[_plain(item) for item in topic.read(1, gaps=True)]]
    topic.seal()
    told += [_bounds(topic.bounds())]
    topic.truncate(6)
    told += [_bounds(topic.bounds()), name in log.topics()]
    try:
        list(log.topic(f"{name}-none").read())
    except seglog.NoSuchTopic as error:
        told.append(error.topic == f"{name}-none")
    return told


async def history_in_loop(log: AnyAsyncLog, name: str) -> list[object]:
    """Return what `history` does."""
    topic: AnyAsyncTopic = log.topic(name)
    told: list[object] = [topic.name, await topic.append([b"one", b"two"], tag="eu"), await topic.append([], tag="eu")]
    told += [await topic.append_once([b"three"], tag="us-1", key="k") for _ in range(2)]
    batch = seglog.ProducerBatch("p", 1, 0)
    told += [
        await topic.append_once([b"four", b"five"], producer=batch, node="n", unterminated=True, durability="fsync")
    ]
    told += [await topic.append_once([b"four", b"five"], producer=batch), await topic.append([b"six"], if_head=5)]
    for condition in ("head", "incarnation"):
        try:
            if condition == "head":
                await topic.append([b"x"], if_head=2)
            else:
                await topic.append([b"x"], if_incarnation="another")
        except (seglog.HeadMoved, seglog.OtherIncarnation) as error:
            told.append(type(error))
    records: list[Record] = [record async for record in topic.read()]
    items: list[Record | Gap] = [item async for item in topic.read(gaps=True)]
    told += [[_plain(item) for item in records], [_plain(item) for item in items]]
    times = [record.ts_ms for record in records]
    told += [[record.seq async for record in topic.read(2, 5, tag="us*", limit=9)]]
    told += [[record.seq async for record in topic.read(limit=2)], [record.seq async for record in topic.read(limit=0)]]
    told += [[record.seq async for record in topic.read(since_ms=times[-1], until_ms=times[-1] + 1)][-1:]]
    batches = [batch async for batch in topic.read_arrow(2, 3, tag="eu", text=True)]
    told += [[value for batch in batches for value in batch.column("value").to_pylist()]]
    told += [[record.seq async for record in topic.follow(4, timeout_s=0.05)]]
    told += [[record.seq async for record in topic.follow(tag="us-1", timeout_s=0.05)]]
    await topic.delete(seqs=[1, 3], epoch=(await topic.bounds()).epoch)
    told += [[record.seq async for record in topic.read()]]
    await topic.delete(grep="^f", start=5, since_ms=times[0], until_ms=times[-1])
    told += [[record.seq async for record in topic.read()]]
    await topic.delete(since_ms=times[-1] + 60_000)
    await topic.evict(3)
    told += [[_plain(item) async for item in topic.read(1, gaps=True)]]
    await topic.seal()
    told += [_bounds(await topic.bounds())]
    await topic.truncate(6)
    told += [_bounds(await topic.bounds()), name in await log.topics()]
    try:
        [record async for record in log.topic(f"{name}-none").read()]
    except seglog.NoSuchTopic as error:
        told.append(error.topic == f"{name}-none")
    return told


def archive_history(archive: AnyArchive, log: AnyLog, name: str) -> list[object]:
    """Return the result of each call of an archive."""
    topic = log.topic(name)
    topic.append([b"%d" % number for number in range(10)], tag="eu")
    topic.seal()
    done = archive.offload(name)
    told: list[object] = [(done.offloaded_seq, done.released_seq, done.unsealed_records)]
    told += [archive.delete(name, start=3, end=4, message="too many"), archive.evict(name, 2)]
    told += [archive.truncate(name, 9, message="too late")]
    half = archive.restore(name, to="seq:5", name="half")
    told += [(half.records, half.last_seq, half.last_ts_ms > 0), [record.seq for record in topic.read(gaps=False)]]
    archive.branches.rename_branch(name, "half", "part")
    told += [[(each.topic, each.branch, each.created_at_ms > 0) for each in archive.branches.list(name)]]
    archive.branches.delete_branch(name, "part", message="enough")
    told += [[(each.branch, each.deleted_at_ms is None) for each in archive.branches.list(name, deleted=True)]]
    archive.branches.undelete_branch(name, "part")
    told += [[(each.branch, each.deleted_at_ms is None) for each in archive.branches.list(name, deleted=True)]]
    return told


def _plain(item: Record | Gap) -> object:
    return item if isinstance(item, Gap) else (item.seq, item.value, item.tag, item.node, item.unterminated)


def _bounds(bounds: Bounds) -> object:
    return bounds.earliest_seq, bounds.head_seq, bounds.sealed_seq, bounds.incarnation is not None


if TYPE_CHECKING:

    def _fit(log: seglog.Log, client: Client, archive: Archive, remote: RemoteArchive) -> None:
        """Every carrier is what the protocols ask for."""
        logs: list[AnyLog] = [log, client]
        topics: list[AnyTopic] = [log.topic("t"), client.topic("t")]
        archives: list[AnyArchive] = [archive, remote]
        del logs, topics, archives

    def _fit_in_loop(log: AsyncLog, client: AsyncClient, topic: AsyncTopic, remote: AsyncRemoteTopic) -> None:
        logs: list[AnyAsyncLog] = [log, client]
        topics: list[AnyAsyncTopic] = [topic, remote]
        del logs, topics
