"""The branches of forks, and the removal of what a stream leaves.

DSFORK-1  The branch of a fork ends with `_g` and 64 random bits. So two forks beside each other never get one branch,
    and the daemon never deletes another branch.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from functools import partial

from catalog import errors as catalog_errors
from offload.archive import Archive
from offload.daemon.service import Service
from offload.daemon.streams.entries import Entry
from offload.daemon.streams.errors import InvalidStreamRequest
from offload.daemon.streams.live import Live
from offload.daemon.streams.messages import is_json
from offload.daemon.streams.requests import Fork
from offload.daemon.threads import in_threads
from offload.errors import TopicAttached
from seglog import NoSuchTopic

__all__ = ["branch_name", "divergence", "drop_branch", "drop_topic", "make_branch"]

_PATH_PART = 100  # characters of the path's name; `_g` and 16 hexadecimal digits follow


def branch_name(source: Live, name: str) -> str:
    """Return a name for the branch of a fork whose path has this name (DSFORK-1)."""
    return f"{source.entry.topic.partition('@')[0]}@{name[:_PATH_PART]}_g{secrets.token_hex(8)}"


async def make_branch(service: Service, archive: Archive, entry: Entry, source: Live) -> None:
    """Make the branch of a fork. The archive first offloads the tail of the source, if the branch needs it."""
    branch = entry.topic.partition("@")[2]
    restore = partial(archive.restore, source.entry.topic, to=f"seq:{entry.own}", name=branch)
    await in_threads(service.cold_reads, restore)


async def divergence(service: Service, source: Live, fork: Fork) -> tuple[int, bytes]:
    """Return the last seq that the fork inherits, and the bytes that it inherits of the record behind it."""
    async with source.turns.shared():  # beside a closure, its end would count as a record of data
        tail = source.tail
        after = source.place(fork.offset, "Stream-Fork-Offset") if fork.offset else tail
    if not fork.skip:
        return after, b""
    is_message = is_json(source.entry.content_type)
    found: tuple[int, bytes] = await in_threads(
        service.cold_reads, _skipped, source, range(after + 1, tail + 1), fork.skip, is_message
    )
    return found


def drop_topic(service: Service, name: str) -> None:
    """Delete the topic of a stream. If the remote has records of it, delete its records, and keep the topic."""
    archive, log = service.archive, service.sync
    with suppress(NoSuchTopic):
        if archive is None:
            log.delete_topic(name)
            return
        try:
            archive.delete_topic(name)
        except TopicAttached:
            archive.delete(name, before=log.get_topic(name).head_seq + 1)


def drop_branch(service: Service, name: str) -> None:
    """Delete the branch of a fork, here and in the remote."""
    archive = service.archive
    if archive is None:
        return
    with suppress(NoSuchTopic):
        archive.delete_topic(name, detach=True, discard=True)
    root, _, branch = name.partition("@")
    with suppress(
        catalog_errors.NoSuchBranch, catalog_errors.NoSuchTopic
    ):  # the source may never have reached the remote
        archive.branches.delete_branch(root, branch)


def _skipped(source: Live, seqs: range, skip: int, is_message: bool) -> tuple[int, bytes]:
    """Return the last whole record and the prefix of the next one, `skip` messages or bytes on from the first seq."""
    last, left = seqs.start - 1, skip
    if seqs:
        for record in source.topic.read(seqs[0], seqs[-1]):
            size = 1 if is_message else len(record.value)
            if left < size:
                return last, record.value[:left]
            last, left = record.seq, left - size
            if not left:
                return last, b""
    raise InvalidStreamRequest("Stream-Fork-Sub-Offset", f"{skip} goes beyond the end of the source")
