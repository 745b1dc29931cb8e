"""This directory and the volume of a topic: `seglog sync`, `reset` and `takeover`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any

from offload.errors import Misuse
from offload.operations.command import About, Command, Directory, Host, TopicName, dry
from offload.operations.printing import Output, WouldTake, check_meant, counted, lines, taking_lines, would
from offload.operations.result_json import HIDDEN, MERGED
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from offload.archive import Archive
    from offload.replication.replica import SyncState
    from offload.replication.sync import Synced
    from offload.write.publisher import Published

_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class SyncPosition:
    """The position of a topic here and in the remote. `state` is the whole of it in one word."""

    topic: str
    state: str
    seq: int
    local_ahead: int
    lsn: int
    remote_ahead: int


@dataclass(frozen=True, slots=True)
class SyncedTopic:
    """The result of one look. `role` is replica or writer. `commits` counts the fetched commits."""

    place: SyncPosition = field(metadata=MERGED)
    role: str
    commits: int
    lsns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicReset:
    """The records and deletes that only this directory had. `branch` has them now. They are dropped if it is None."""

    topic: str
    lsn: int
    is_followed: bool
    records: int
    deletes: int
    branch: str | None
    only_here: bool
    has_changes: bool = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class TakenOver:
    topic: str
    lsn: int
    epoch: int
    next_seq: int


def sync(
    directory: Directory,
    topic: TopicName,
    push: Annotated[
        bool, About("Only send the sealed segments, and the deletes after them, as `offload` does.")
    ] = False,
    fetch: Annotated[
        bool, About("Only fetch new commits of other writers. Readers see no change until `sync`.")
    ] = False,
    follow: Annotated[bool, About("Then look again and again, until an interrupt.")] = False,
    interval: Annotated[float, About("With --follow: seconds between looks.", least=0.05)] = 5.0,
) -> Iterator[SyncedTopic | SyncPosition]:
    """Fetch new commits of a topic, or send its segments. Then this directory and the volume of the topic are equal.

    If both have changed, `sync` changes nothing, and `reset` is the way out. If a topic is only in the remote, this
    directory becomes a replica of it, which reads the records of other writers. With --fetch, this directory keeps
    every commit that a read of the newest state needs: `log` and `status` then need no remote, and a shell completes
    the tags of the topic.
    """
    if push + fetch + follow > 1:
        raise Misuse("--push, --fetch and --follow exclude each other")
    archive = directory.archive
    if fetch:
        with directory.counting(f"sync {topic}"):
            yield _position(topic, archive.replication.fetch(topic))
        return
    waiting_bytes = archive.status.waiting_bytes(topic) if push or directory.log.has_topic(topic) else None
    with directory.host.progress(f"sync {topic}", waiting_bytes) as advance:
        if push:
            yield _synced(archive, topic, archive.offload(topic, on_bytes=advance).published)
            return
        synced = archive.replication.sync(topic, on_bytes=advance)
    yield _of_look(archive, synced)
    while follow and _wait(directory.host, interval):
        synced = archive.replication.sync(topic)
        if synced.commits or synced.published:
            yield _of_look(archive, synced)
        directory.host.check_listener()


def reset(
    directory: Directory,
    topic: TopicName,
    as_branch: Annotated[
        str | None, About("Keep the records and deletes that are only here as this new branch.", "--as")
    ] = None,
    discard: Annotated[bool, About("Drop the records and deletes that are only here, for good.")] = False,
    message: Annotated[str, About("Why, for the oplog.", "-m --message")] = "",
    dry_run: Annotated[bool, About("With --discard: show what would go, and change nothing.")] = False,
    yes: Annotated[bool, About("With --discard: do it without a question.")] = False,
) -> TopicReset | WouldTake:
    """Return to the state of the volume. The directory then follows it. This is the way out after `DIVERGED` or
    `FENCED`.

    If only this directory has some records or deletes, `reset` needs --as or --discard. The new branch is in this
    directory only, until it is sealed and offloaded. The next append to the topic here takes it over again, and stops
    another writer. Example: seglog reset orders --as what-i-had
    """
    if as_branch is not None and discard:
        raise Misuse("--as keeps it, --discard drops it: say one")
    if discard:
        check_meant(f"this drops what only this directory has of {topic}", yes=yes, dry_run=dry_run)
    elif dry_run:
        raise Misuse("--dry-run goes with --discard")
    if dry_run:
        return would("reset --discard", topic, directory.archive.previews.local(topic))
    with directory.counting(f"reset {topic}"):
        result = directory.archive.replication.reset(topic, as_branch=as_branch, discard=discard, message=message)
    return TopicReset(
        topic=topic,
        lsn=result.lsn,
        is_followed=result.is_followed,
        records=result.changes.records,
        deletes=result.changes.deletes,
        branch=f"{topic.partition('@')[0]}@{result.branch}" if result.branch else None,
        only_here=result.branch is not None,
        has_changes=bool(result.changes),
    )


def takeover(directory: Directory, topic: TopicName) -> TakenOver:
    """Become the writer of a topic. The former writer is fenced, and offloads nothing of the topic any more.

    Records that the former writer has not offloaded stay in its directory. There, `seglog reset --as` makes them a
    branch.
    """
    archive = directory.archive
    with directory.counting(f"takeover {topic}"):
        archive.replication.take_over(topic)
    status = archive.status.topic(topic)
    return TakenOver(topic, status.lsn, status.writer_epoch, status.head_seq + 1)


def _position(topic: str, state: SyncState) -> SyncPosition:
    return SyncPosition(topic, str(state), state.seq, state.local_ahead, state.lsn, state.remote_ahead)


def _of_look(archive: Archive, synced: Synced) -> SyncedTopic:
    role = "replica" if synced.is_replica else "writer"
    return _synced(archive, synced.name, synced.published, role, synced.commits)


def _synced(
    archive: Archive, name: str, published: Sequence[Published], role: str = "writer", commits: int = 0
) -> SyncedTopic:
    position = _position(name, archive.replication.sync_state(name))
    return SyncedTopic(position, role, commits, tuple(each.lsn for each in published))


def _wait(host: Host, seconds: float) -> bool:
    """Wait so many seconds, and return True. If the process that runs the command stops, return False at once."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        if host.is_ending:
            return False
        time.sleep(min(left_s, _LOOK_S))
    return not host.is_ending


def _print_synced(output: Output, results: Iterator[SyncedTopic | SyncPosition], _: Mapping[str, Any]) -> None:
    """Print each look as it comes: with --follow the next one may be far away."""
    for result in results:
        output.show(result, synced_text(result))
        output.flush()


def synced_text(result: SyncedTopic | SyncPosition) -> str:
    if isinstance(result, SyncPosition):
        return f"{result.topic}: {result.state}"
    done = [f"took in {counted(result.commits, 'commit')}"] if result.commits else []
    done += [f"sent {', '.join(f'lsn {lsn}' for lsn in result.lsns)}"] if result.lsns else []
    return f"{result.place.topic}: {', '.join(done) or 'nothing new'}, {result.role} at {result.place.state}"


def taken_over_text(taken_over: TakenOver) -> str:
    return f"{taken_over.topic} is written here from seq {taken_over.next_seq} on (epoch {taken_over.epoch})"


def reset_text(done: TopicReset) -> str:
    now = f"follows its volume at lsn {done.lsn}" if done.is_followed else "is gone here, too"
    warning = f"\n  the next append to {done.topic} here takes it over, and stops another writer" * done.is_followed
    end = f"{done.topic} {now}"
    changes = f"{counted(done.records)} and {counted(done.deletes, 'delete')}"
    if done.branch is None:
        return (f"{end}; {changes} were dropped" if done.has_changes else end) + warning
    first = "" if done.is_followed else ", from seq 1 on"
    steps = f"`seglog seal {done.branch}`, then `seglog offload {done.branch}` bring them to the remote"
    return f"{end}; {changes} are on {done.branch}{first}, in this directory only: {steps}{warning}"


_print_reset = taking_lines(reset_text)


SYNC = Command("sync", sync, _print_synced, section="replicate")
RESET = Command(
    "reset", reset, _print_reset, reads=dry, takes=lambda values: values["discard"], is_slow=True, section="repair"
)
TAKEOVER = Command("takeover", takeover, lines(taken_over_text), is_slow=True, section="replicate")
