"""The commands `seglog push`, `pull`, `fetch`, `sync`, `reset` and `takeover`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from offload.archive import Archive
from offload.cli.output import output
from offload.cli.session import Session, TopicName, counted, emit, session_of
from offload.replication.replica import SyncState
from offload.replication.sync import Synced

__all__ = ["fetch", "pull", "push", "reset", "sync", "takeover"]

_LOOK_S = 0.2


def push(context: typer.Context, topic: TopicName) -> None:
    """Send what is sealed of a topic to its volume, and the deletes that came after it. The same as `offload`."""
    session = session_of(context)
    with session.archive() as (_, archive):
        result = archive.offload(topic)
        state = archive.replication.sync_state(topic)
        lsns = [published.lsn for published in result.published]
        told = ", ".join(f"lsn {lsn}" for lsn in lsns) or "nothing new"
        emit(session, {**_fields(topic, state), "lsns": lsns}, f"{topic}: pushed {told}, now at {state}")


def pull(context: typer.Context, topic: TopicName) -> None:
    """Look for commits of others, and keep them here. What readers see stays; `sync` moves them on.

    A topic or branch that is only in the remote is followed from now on.
    """
    session = session_of(context)
    with session.archive() as (_, archive):
        _say_state(session, topic, archive.replication.pull(topic))


def fetch(context: typer.Context, topic: TopicName) -> None:
    """As pull, and keep every commit that reading the newest state needs: `log` and `status` then need no remote."""
    session = session_of(context)
    with session.archive() as (_, archive):
        _say_state(session, topic, archive.replication.fetch(topic))


def sync(
    context: typer.Context,
    topic: TopicName,
    follow: Annotated[bool, typer.Option("--follow", help="Then look again and again, until interrupted.")] = False,
    interval: Annotated[float, typer.Option(min=0.05, help="With --follow: seconds between looks.")] = 5.0,
) -> None:
    """Make this directory and the volume of a topic the same: take what is new there, or push what is sealed here.

    If both have changed, nothing is done, and `reset` says how to go on. A topic that is only in the remote is followed
    from now on: a replica, which reads what others write.
    """
    session = session_of(context)
    with session.archive() as (_, archive):
        _say_synced(session, archive, archive.replication.sync(topic))
        while follow and _wait(session, interval):
            synced = archive.replication.sync(topic)
            if synced.commits or synced.published:
                _say_synced(session, archive, synced)
            output().flush()


def reset(
    context: typer.Context,
    topic: TopicName,
    as_branch: Annotated[
        str | None,
        typer.Option("--as", help="Keep what is only here as this new branch.", show_default=False),
    ] = None,
    discard: Annotated[bool, typer.Option("--discard", help="Drop what is only here, for good.")] = False,
) -> None:
    """Go back to what the volume has, and follow it: the way out after `DIVERGED` or `FENCED`.

    Without --as or --discard it is refused if this directory has records or deletes that no commit tells of.
    The new branch is in this directory only until it is sealed and offloaded.
    Example: seglog reset orders --as what-i-had
    """
    if as_branch is not None and discard:
        raise typer.BadParameter("--as keeps it, --discard drops it: say one")
    session = session_of(context)
    with session.archive() as (_, archive):
        result = archive.replication.reset(topic, as_branch=as_branch, discard=discard)
        changes = f"{counted(result.changes.records)} and {counted(result.changes.deletes, 'delete')}"
        base = topic.partition("@")[0]
        told = f"; {changes} are on {base}@{result.branch}" if result.branch else ""
        if result.branch and not result.is_followed:
            told += ", from seq 1 on"
        if result.branch:
            branch = f"{base}@{result.branch}"
            told += ", in this directory only: "
            told += f"`seglog seal {branch}`, then `seglog offload {branch}` bring them to the remote"
        end = f"{topic} follows its volume at lsn {result.lsn}" if result.is_followed else f"{topic} is gone here, too"
        if result.changes and result.branch is None:
            told = f"; {changes} were dropped"
        emit(
            session,
            {
                "topic": topic,
                "lsn": result.lsn,
                "is_followed": result.is_followed,
                "records": result.changes.records,
                "deletes": result.changes.deletes,
                "branch": f"{base}@{result.branch}" if result.branch else None,
                "only_here": result.branch is not None,
            },
            f"{end}{told}",
        )


def takeover(context: typer.Context, topic: TopicName) -> None:
    """Become the writer of a topic: whoever writes it elsewhere is fenced, and offloads nothing of it any more.

    Records that the other one has not offloaded stay there; `seglog reset --as` there makes them a branch.
    """
    session = session_of(context)
    with session.archive() as (_, archive):
        archive.replication.take_over(topic)
        status = archive.status.topic(topic)
        emit(
            session,
            {"topic": topic, "lsn": status.lsn, "epoch": status.writer_epoch, "next_seq": status.head_seq + 1},
            f"{topic} is written here from seq {status.head_seq + 1} on (epoch {status.writer_epoch})",
        )


def _wait(session: Session, seconds: float) -> bool:
    """Wait so many seconds, and return True. If the daemon that runs the command stops, return False at once."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        if session.is_ending:
            return False
        time.sleep(min(left_s, _LOOK_S))
    return not session.is_ending


def _say_state(session: Session, topic: str, state: SyncState) -> None:
    emit(session, _fields(topic, state), f"{topic}: {state}")


def _say_synced(session: Session, archive: Archive, synced: Synced) -> None:
    state = archive.replication.sync_state(synced.name)
    lsns = [published.lsn for published in synced.published]
    done = [f"took in {counted(synced.commits, 'commit')}"] if synced.commits else []
    done += [f"pushed {', '.join(f'lsn {lsn}' for lsn in lsns)}"] if lsns else []
    role = "replica" if synced.is_replica else "writer"
    emit(
        session,
        {**_fields(synced.name, state), "role": role, "commits": synced.commits, "lsns": lsns},
        f"{synced.name}: {', '.join(done) or 'nothing new'}, {role} at {state}",
    )


def _fields(topic: str, state: SyncState) -> dict[str, object]:
    return {
        "topic": topic,
        "state": str(state),
        "seq": state.seq,
        "local_ahead": state.local_ahead,
        "lsn": state.lsn,
        "remote_ahead": state.remote_ahead,
    }
