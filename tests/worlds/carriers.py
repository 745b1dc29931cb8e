"""Programs that work with any carrier: a log in the process, or the client of a daemon. mypy checks them strictly."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import seglog
from catalog.errors import InvalidName, NoSuchBranch, NoSuchTopic
from seglog import Gap, Record
from seglog.values.protocols import AnyArchive, AnyAsyncLog, AnyAsyncTopic, AnyLog, AnyTopic, Bounds

if TYPE_CHECKING:
    from offload import Archive
    from seglog.aio import AsyncLog, AsyncTopic
    from seglog.client import Client, RemoteArchive
    from seglog.client.aio import AsyncClient, AsyncRemoteTopic

__all__ = ["archive_history", "deletes", "deletes_in_loop", "history", "history_in_loop", "refusals"]


def history(log: AnyLog, name: str) -> list[object]:
    """Return the result of each call of a topic's life."""
    topic: AnyTopic = log.topic(name)
    told: list[object] = [topic.name, topic.append([b"one", b"two"], tag="eu"), topic.append([], tag="eu")]
    told += [topic.append_once([b"three"], tag="us-1", key="k"), topic.append_once([b"three"], tag="us-1", key="k")]
    batch = seglog.ProducerBatch("p", 1, 0)
    told += [topic.append_once([b"four", b"five"], producer=batch, node="n", unterminated=True, durability="fsync")]
    told += [topic.append_once([b"four", b"five"], producer=batch), topic.append([b"six"], if_head=5)]
    told += [topic.append_stream(iter([b"sev", b"en", b""]), tag="eu", key="s") for _ in range(2)]
    told += [topic.append_stream([], durability="fsync")]
    try:
        topic.append_stream(chunk for chunk in [b"x", None])  # type: ignore[misc]
    except seglog.InvalidArgument as wrong:
        told.append(wrong.name)
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
    told += [type(topic.delete(seqs=[1, 3], epoch=topic.bounds().epoch))]
    told += [[record.seq for record in topic.read()]]
    topic.delete(grep="^f", start=5, since_ms=times[0], until_ms=times[-1])
    told += [[record.seq for record in topic.read()]]
    topic.delete(since_ms=times[-1] + 60_000)
    told += [type(topic.evict(0)), topic.bounds().earliest_seq, type(topic.evict(3))]
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
    told += [await topic.append_stream(_chunks(b"sev", b"en", b""), tag="eu", key="s") for _ in range(2)]
    told += [await topic.append_stream(_chunks(), durability="fsync")]
    try:
        await topic.append_stream(_chunks(b"x", None))
    except seglog.InvalidArgument as wrong:
        told.append(wrong.name)
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
    told += [type(await topic.delete(seqs=[1, 3], epoch=(await topic.bounds()).epoch))]
    told += [[record.seq async for record in topic.read()]]
    await topic.delete(grep="^f", start=5, since_ms=times[0], until_ms=times[-1])
    told += [[record.seq async for record in topic.read()]]
    await topic.delete(since_ms=times[-1] + 60_000)
    told += [type(await topic.evict(0)), (await topic.bounds()).earliest_seq, type(await topic.evict(3))]
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
    told += [archive.delete(name, seqs=[]), archive.delete(name, grep="no such"), archive.delete(name, grep=r"9\s")]
    told += [archive.evict(name, 0), archive.truncate(name, 9, message="too late")]
    half = archive.restore(name, to="seq:5", name="half")
    told += [(half.records, half.last_seq, half.last_ts_ms > 0), [record.seq for record in topic.read(gaps=False)]]
    archive.restore(name, to="seq:5", name="more")
    branch = archive.open_for_append(f"{name}@more")
    told += [branch.name, branch.append([b"on the branch"]), [record.value for record in branch.read(5)]]
    archive.restore(name, to="seq:5", name="third")
    told += [log.topic(f"{name}@third").append([b"at once"]), log.topic(f"{name}@third").bounds().head_seq]
    told += [[record.value for record in log.topic(f"{name}@more").read(6)]]
    archive.branches.rename_branch(name, "half", "part")
    told += [[(each.topic, each.branch, each.created_at_ms > 0) for each in archive.branches.list(name)]]
    archive.branches.delete_branch(name, "part", message="enough")
    told += [[(each.branch, each.deleted_at_ms is None) for each in archive.branches.list(name, deleted=True)]]
    archive.branches.undelete_branch(name, "part")
    told += [[(each.branch, each.deleted_at_ms is None) for each in archive.branches.list(name, deleted=True)]]
    return told


DELETES: list[seglog.DeleteArguments] = [
    {},
    {"epoch": 0},
    {"start": 0},
    {"start": 0, "end": 0},
    {"end": 0},
    {"end": 2**63 - 1},
    {"start": 5, "end": 3},
    {"start": 5, "end": 3, "since_ms": 0},
    {"start": 5, "before": 3},
    {"start": 1000},
    {"start": 1000, "grep": "x"},
    {"start": 3, "tag": "eu"},
    {"start": 0, "grep": "one"},
    {"before": 0},
    {"before": 3},
    {"before": 2**63 - 1},
    {"seqs": []},
    {"seqs": [], "epoch": 7},
    {"seqs": [2, 4, 1000, 2**62]},
    {"seqs": range(1, 2_000_010, 2)},
    {"seqs": [1, 2, 3], "start": 2, "before": 3},
    {"grep": "["},
    {"grep": r"\pN"},
    {"grep": r"(?=one|two)", "tag": "eu"},
    {"grep": r"(o)(?!\1)", "end": 1, "since_ms": 0},
    {"grep": "[0[:digit:]]"},
    {"grep": r"^\s"},
    {"grep": r"six\S"},
    {"grep": r"^\B"},
    {"grep": "(?i)\xe9"},
    {"grep": "e$", "seqs": range(2, 9)},
    {"grep": r"e\Z"},
    {"grep": "^fiv{,2}e", "start": 2},
    {"grep": "e$", "epoch": 7},
]
_VALUES = [b"one", b"two", b"three", b"four", b"five", b"line\n", b"\vsix\v", b"", b"a:]", "\xc9".encode()]


def deletes(log: AnyLog) -> list[object]:
    """Return what each delete leaves of a topic of its own, or its error."""
    told: list[object] = []
    for number, conditions in enumerate(DELETES):
        topic = log.topic(f"deletes-{number}")
        topic.append(_VALUES, tag="eu")
        try:
            told.append(type(topic.delete(**conditions)))
        except seglog.SeglogError as error:
            told.append(type(error))
        told.append([record.seq for record in topic.read()])
    try:
        log.topic("deletes-none").delete(seqs=[])
    except seglog.NoSuchTopic as error:
        told.append(error.topic)
    return told


async def deletes_in_loop(log: AnyAsyncLog) -> list[object]:
    """Return what `deletes` does."""
    told: list[object] = []
    for number, conditions in enumerate(DELETES):
        topic = log.topic(f"loop-{number}")
        await topic.append(_VALUES, tag="eu")
        try:
            told.append(type(await topic.delete(**conditions)))
        except seglog.SeglogError as error:
            told.append(type(error))
        told.append([record.seq async for record in topic.read()])
    return told


def refusals(archive: AnyArchive, log: AnyLog, name: str) -> list[object]:
    """Return the errors of calls that cannot be, which a program catches by the classes of `seglog.errors`."""
    topic = log.topic(name)
    topic.append([b"one", b"two", b"three"])
    topic.evict(2)
    topic.seal()
    archive.offload(name)
    archive.restore(name, to="head", name="there")
    archive.open_for_append(f"{name}@there").append([b"more"])
    calls: list[tuple[Callable[[], object], type[seglog.SeglogError]]] = [
        (lambda: topic.truncate(1), seglog.NotTruncatable),
        (lambda: topic.truncate(0), seglog.NotTruncatable),
        (lambda: archive.truncate(name, 0), seglog.NotTruncatable),
        (lambda: archive.open_for_append("a/b"), seglog.InvalidName),
        (lambda: topic.truncate(99), seglog.SeqOutOfRange),
        (lambda: topic.append([b"x"], durability="paper"), seglog.InvalidSetting),
        (lambda: topic.append([b"x" * (2**24 + 1)]), seglog.RecordTooLarge),
        (lambda: archive.restore(name, to="head", name="there"), seglog.BranchExists),
        (lambda: archive.restore(name, to="tag:none", name="new"), seglog.NoSuchTag),
        (lambda: archive.restore(name, to="once upon a time", name="new"), seglog.InvalidTarget),
        (lambda: archive.restore(name, to="1999-01-01T00:00:00Z", name="new"), seglog.OutOfWindow),
        (lambda: archive.restore("no-topic", to="head", name="new"), seglog.NoSuchTopic),
        (lambda: archive.restore(f"{name}@none", to="head", name="new"), seglog.NoSuchBranch),
        (lambda: archive.branches.delete_branch(name, "none"), seglog.NoSuchBranch),
        (lambda: archive.branches.delete_branch(name, "main"), seglog.Misuse),
        (lambda: archive.branches.delete_branch(name, "there"), seglog.Conflict),
        (lambda: archive.branches.rename_branch(name, "none", "new"), seglog.NoSuchBranch),
        (lambda: archive.branches.rename_branch(name, "none", "a b"), InvalidName),
        (lambda: archive.branches.undelete_branch(name, "none"), NoSuchBranch),
        (lambda: archive.restore(name, to="seq:3", name="a b"), InvalidName),
        (lambda: archive.restore("no-topic", to="head", name="new"), NoSuchTopic),
        (lambda: log.topic(f"{name}@none").append([b"x"]), NoSuchBranch),
        (lambda: log.topic(f"{name}@none").append_stream([b"x"]), NoSuchBranch),
    ]
    told: list[object] = []
    for call, kind in calls:
        try:
            told.append(call())
        except kind as error:
            if type(error).__name__ != kind.__name__:
                raise
            text = f"{kind.__name__}: {error} ({error.hint}) {error.exit_code} {error.fields()}"
            text = re.sub(r"file://[\w/.-]+", "REMOTE", text)
            told.append((re.sub(r"20\d\d-[0-9T:.-]+Z", "NOW", text),))
    return told


async def _chunks(*chunks: Any) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


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
