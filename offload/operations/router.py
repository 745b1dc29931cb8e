"""Routers: the daemon copies the records of one topic to another, each once: `seglog router ...` (seglog.delivery)."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from offload.operations.command import About, Command, Directory, always
from offload.operations.matching import Pattern, Tag, match_of, pattern_of
from offload.operations.printing import counted, lines, rows
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Conflict, Missing
from seglog.base.lazy import logger
from seglog.errors import NoSuchTopic, SeglogError

if TYPE_CHECKING:
    from offload.archive import Archive
    from seglog import Log, Record
    from seglog.delivery.router import Router
    from seglog.delivery.router_states import RouterStates

Name = Annotated[str, About("The router.")]
TOPIC = "_seglog.routers"
"""The topic of their records, here so that a look for it imports nothing."""
_STREAMS_TOPIC = "_streams"
_log = logger("seglog.daemon")


@dataclass(frozen=True, slots=True)
class RouterAt:
    """A router, and its place: each record of `source` up to `seq` is copied or passed over. None: it is unknown."""

    router: str
    source: str
    destination: str
    seq: int | None


@dataclass(frozen=True, slots=True)
class RouterListed:
    """A router, and how far it is behind.

    `state` is copying, paused or stopped, and `reason` says why it stopped. `seq` is its place in the source; None if
    it is unknown. `lag_records` counts the seqs behind it, whether they match or not. `passed_over` counts the records
    that were gone before the router came to them, such as evicted ones.
    """

    router: str
    source: str
    destination: str
    tag: str | None
    grep: str | None
    drop_tag: bool
    drop_node: bool
    state: str
    reason: str | None
    seq: int | None
    lag_records: int | None
    passed_over: int


def create(
    directory: Directory,
    name: Annotated[str, About("The new router.")],
    source: Annotated[str, About("The topic to copy from.", "--from", names="plain topic")],
    destination: Annotated[
        str, About("The topic to copy to. It is made if there is none.", "--to", names="plain topic")
    ],
    tag: Tag = None,
    grep: Pattern = None,
    drop_tag: Annotated[bool, About("Copy without the tag.")] = False,
    drop_node: Annotated[bool, About("Copy without the node.")] = False,
    at: Annotated[
        str,
        About(
            "Behind what it begins: earliest, head, seq:N, lsn:N, head~N, tag:NAME; or from a time on.", names="target"
        ),
    ] = "earliest",
) -> RouterAt:
    """Copy the records of one topic to another one.

    A daemon that serves the directory copies each record once, in order, with its value, tag and node. The destination
    takes no other appends. Example: seglog router create invoices --from orders --to billing --tag "eu*"
    """
    import secrets

    from catalog.format import keys
    from offload.operations.cursor import floor_of
    from seglog.delivery.router import Router

    keys.check_name("router", name)
    if grep is not None:
        pattern_of(grep, serves_others=True)  # the daemon has to look for it
    for topic in (source, destination):
        _check_own(directory, topic)
    states, log = loaded_states(directory.log, directory.maybe_archive), directory.log
    if directory.maybe_archive is not None:
        directory.maybe_archive.replication.check_not_followed(TOPIC)
    taken = log.get_topic(source)
    seq = floor_of(directory, taken, at)
    states.check_new(name, source, destination)  # before the destination is made
    given = log.topic(destination)
    if not given.exists:
        log.create_topic(destination, given.config)
    if given.config.durability == "ephemeral":
        text = f"topic {destination} is ephemeral, and a copy that may vanish is none"
        raise Conflict(text, hint=f"`seglog topic set {destination} --durability fsync` keeps its records")
    incarnations = taken.incarnation(), given.incarnation()
    pair = replace(states.pair(taken, given, seq), to_epoch=0)  # not settled (PAIR-1)
    router = Router(
        name,
        secrets.token_hex(8),
        source,
        destination,
        *incarnations,
        pairs=(pair,),
        tag=tag,
        grep=grep,
        drop_tag=drop_tag,
        drop_node=drop_node,
    )
    states.create(router)
    return RouterAt(name, source, destination, pair.seq)


def list_routers(directory: Directory) -> Iterator[RouterListed]:
    """List the routers, and how far they are behind.

    A router that stopped says why. The command asks only this directory.
    """
    return listed(directory.log, loaded_states(directory.log, directory.maybe_archive))


def pause(directory: Directory, name: Name) -> RouterAt:
    """Let a router wait, also over restarts. What it misses meanwhile is copied after `router resume`."""
    return _changed(directory, name, lambda router: replace(router, is_paused=True))


def resume(directory: Directory, name: Name) -> RouterAt:
    """Let a paused router go on."""
    return _changed(directory, name, lambda router: replace(router, is_paused=False))


def delete(directory: Directory, name: Name) -> RouterAt:
    """Delete a router. The copies stay, and the destination takes appends again.

    The answer has its place, from which another one may go on with `--at seq:N`. It has none if nobody knows it.
    """
    return _changed(directory, name, lambda router: replace(router, is_deleted=True))


def _changed(directory: Directory, name: str, change: Callable[[Router], Router]) -> RouterAt:
    if directory.maybe_archive is not None:
        directory.maybe_archive.replication.check_not_followed(TOPIC)
    states = loaded_states(directory.log, directory.maybe_archive)
    with states.lock_of(name):
        router = states.find(name)
        states.put(change(router))
        seq = None
        with suppress(SeglogError):  # `router list` says why, unless it is deleted
            seq = states.place_of(router)
    return RouterAt(name, router.source, router.destination, seq)


def _check_own(directory: Directory, topic: str) -> None:
    """Raise `Conflict` for a topic that no router may copy from or to, and `InvalidName`."""
    from catalog.format import keys

    keys.check_name("topic", topic)
    if topic.startswith("_seglog.") or topic == _STREAMS_TOPIC:
        raise Conflict(f"topic {topic} has the daemon's own records, so no router copies from or to it")
    if topic in _stream_topics(directory.log):
        text = f"topic {topic} is a stream, whose records belong together with its end"
        raise Conflict(text, hint="append to a topic, and copy that one")
    if directory.maybe_archive is not None:
        directory.maybe_archive.replication.check_not_followed(topic)


def _stream_topics(log: Log) -> set[str]:
    """Return the topics of all streams that are there (offload.daemon.streams.entries)."""
    newest: dict[str, tuple[str, str]] = {}
    for record in log.topic(_STREAMS_TOPIC).read() if log.has_topic(_STREAMS_TOPIC) else ():
        with suppress(ValueError, KeyError, TypeError):  # the streams themselves report it
            entry = json.loads(record.value)
            newest[entry["path"]] = entry["topic"], entry["state"]
    return {topic for topic, state in newest.values() if state != "gone"}


def loaded_states(log: Log, archive: Archive | None, *, may_wait: bool = True) -> RouterStates:
    """Return the routers of a log. Calls read their records until all are known, and may wait for the store.

    Unless one `may_wait`: then those that have no record on the disk are left for a later call. While this directory
    follows the topic, each call reads it anew from the remote.
    """
    from offload.operations.cursor import lowest_change
    from seglog.delivery.router_states import RouterStates

    def cut(topic: str, since_ms: int) -> int | None:
        return None if archive is None else lowest_change(archive, topic, since_ms)

    def takeovers(topic: str, since_ms: int) -> int:
        return 0 if archive is None else _takeovers(archive, topic, since_ms)

    states, topic = RouterStates.of(log), log.topic(TOPIC)
    if not states.is_loaded:
        records: Callable[[], Iterable[Record]] | None = None
        if not topic.exists and archive is not None and archive.replication.is_replica(TOPIC):
            records = functools.partial(archive.read, TOPIC)
        is_whole = may_wait or not topic.exists or topic.inner.hot_floor <= topic.earliest_seq
        if not is_whole:
            records = functools.partial(topic.read, topic.inner.hot_floor)
        states.load(_log.error, fits_of, cut, takeovers, records, is_whole=is_whole)
    return states


def check_kept(log: Log, archive: Archive | None, topic: str) -> None:
    """Raise `Conflict` if a router copies to the topic, which then has to keep its records."""
    states = loaded_states(log, archive)
    for router in states.all():
        if router.destination == topic and states.end_of(router) is None:
            text = f"router {router.name} copies to topic {topic}, and a copy that may vanish is none"
            raise Conflict(text, hint=f"keep the durability, or end it with `seglog router delete {router.name}`")


def _takeovers(archive: Archive, topic: str, since_ms: int) -> int:
    """Return how many directories have taken a topic over since a time, this one included. GC may hide the oldest."""
    former, later = 1, set[int]()
    with suppress(Missing):
        for past in archive.history.commits(topic):
            commit = past.commit
            if commit.created_at_ms >= since_ms:
                later.add(commit.epoch)
            else:
                former = max(former, commit.epoch)
    return len({epoch for epoch in later if epoch > former})


def fits_of(router: Router) -> Callable[[Record], bool]:
    """Return what says whether a record matches the filter of a router."""
    return match_of(None, None, router.tag, router.grep, fixed=False, serves_others=router.grep is not None).fits


@contextmanager
def truncating(log: Log, archive: Archive | None, topic: str, seq: int) -> Iterator[None]:
    """Let the block truncate a topic, while its routers wait (`RouterStates.truncating`)."""
    if not log.has_topic(TOPIC) or topic.startswith("_seglog."):
        yield
        return
    with loaded_states(log, archive).truncating(topic, seq):
        yield


def listed(log: Log, states: RouterStates) -> Iterator[RouterListed]:
    """Yield the routers with their lags. This asks neither a remote nor a warm store."""
    for router in states.all():
        state, reason, seq = "paused" if router.is_paused else "copying", states.end_of(router), None
        live = states.live[router.name]
        try:
            if reason is None and not log.has_topic(TOPIC):
                reason = f"this directory follows {TOPIC}: `seglog takeover {TOPIC}` lets its daemon copy"
            if reason is None and not states.is_here(router):
                reason = "this directory does not write both topics"
            if reason is None:
                reason, seq = live.trouble, live.seq
                seq = states.place_of(router, is_quick=True) if seq is None else seq
        except SeglogError as error:
            reason = str(error)
        lag = None
        if seq is not None:
            with suppress(NoSuchTopic):
                source = log.topic(router.source)
                lag = max(0, source.head_seq - max(seq, source.earliest_seq - 1))
        yield RouterListed(
            router.name,
            router.source,
            router.destination,
            router.tag,
            router.grep,
            router.drop_tag,
            router.drop_node,
            state if reason is None else "stopped",
            reason,
            seq,
            lag,
            router.passed_over + live.passed_over,
        )
    for name, destination, reason in states.unreadable():
        yield RouterListed(name, "", destination, None, None, False, False, "stopped", reason, None, None, 0)


def lag_text(router: RouterListed) -> str:
    """Return how far a router is behind, such as `12 records behind`."""
    if router.lag_records is None:
        return ""
    return f"{counted(router.lag_records)} behind" if router.lag_records else "at the head"


def _at_text(done: str) -> Callable[[RouterAt], str]:
    def text(at: RouterAt) -> str:
        place = f"behind seq {at.seq}" if at.seq else "before the first record"
        if at.seq is None:
            place = f"at a place that nobody knows: look what {at.destination} has before another router goes on"
        return f"router {at.router} from {at.source} to {at.destination} {done} {place}"

    return text


def _row(router: RouterListed) -> Sequence[str]:
    place = "" if router.seq is None else str(router.seq)
    passed = str(router.passed_over) if router.passed_over else ""
    return (
        router.router,
        router.source,
        router.destination,
        router.state,
        place,
        passed,
        router.reason or lag_text(router),
    )


def listed_text(router: RouterListed) -> str:
    texts = [router.state if router.reason is None else f"{router.state}: {router.reason}", lag_text(router)]
    if router.passed_over:
        texts.append(f"{router.passed_over:,} passed over")
    return f"{router.router}: {router.source} to {router.destination}, {', '.join(text for text in texts if text)}"


_print_listed = rows(("router", "from", "to", "state", "seq", "passed over", "lag"), _row, listed_text)

ROUTER_CREATE = Command("router/create", create, lines(_at_text("begins")), role="admin")
ROUTER_LIST = Command("router/list", list_routers, _print_listed, reads=always, role="read")
ROUTER_DELETE = Command("router/delete", delete, lines(_at_text("is deleted; it was")), role="admin")
ROUTER_PAUSE = Command("router/pause", pause, lines(_at_text("is paused")), role="admin")
ROUTER_RESUME = Command("router/resume", resume, lines(_at_text("goes on")), role="admin")
