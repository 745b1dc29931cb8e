"""The tables of a catalog that show no records: its topics, and what a topic has beside them.

    listing   a row for each
    tenants   tenant whose remote lies below the url, if it has a topic
    topics    topic that the option `topic` names, with the branch that it names
    history   commit of the branch, the newest first
    branches  branch of the topic
    tags      tag of the topic
    segments  segment of the branch, by seq

Times are microseconds since 1970. A listing shows what is there now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from catalog.errors import AccessDenied, Missing
from catalog.format.ids import Vid
from catalog.format.keys import refs_prefix
from catalog.history import retry_if_collected
from catalog.objects.object_store import ObjectStore
from catalog.refs.branch import Branches
from catalog.refs.state_names import Tags
from catalog.tenants.names import is_tenant
from catalog.volume import Volumes
from offload.errors import InvalidOption
from offload.read.chunk_fetcher import in_order
from offload.spark.columns import Column
from offload.spark.options import ReadOptions, TopicPattern
from offload.spark.pin import named_topics
from seglog.base.dataclasses import dataclass
from seglog.base.lazy import pattern

_TOPICS_AT_A_TIME = 16
_NO_TENANT = pattern("[A-Z]")  # what ids of volumes have, and no name of a tenant (TENANT-1)
_Row = tuple[int | str | None, ...]
Listed = tuple[tuple[Column, ...], list[_Row]]


@dataclass(frozen=True, slots=True)
class _Listing:
    columns: tuple[Column, ...]
    rows: Callable[[Volumes, str, Vid], Iterator[_Row]]


def listed(name: str, options: ReadOptions, volumes: Volumes) -> Listed:
    """Return the columns and the rows of a listing. Raises `NoSuchTopic`, `NoSuchBranch` and `InvalidOption`."""
    if name == "tenants":
        return _columns("tenant string"), sorted((name,) for name in _tenants(volumes.store))
    if name == "topics":
        return _columns("topic string"), _topics(options, volumes)
    if not options.is_newest:
        raise InvalidOption("versionAsOf", f"{name} shows what is there now", hint="leave the version out")
    if not options.is_one_topic:
        raise InvalidOption("topic", f"{name} is of one topic", hint="name one topic")
    listing, [pattern] = _LISTINGS[name], options.topics
    vid = Branches(volumes).resolve(pattern.text, pattern.branch)
    return listing.columns, [*listing.rows(volumes, pattern.text, vid)]


def _topics(options: ReadOptions, volumes: Volumes) -> list[_Row]:
    """Return the topics that `options` name and that are there, ascending."""
    work = [partial(_is_there, volumes, pattern) for pattern in named_topics(options, volumes)]
    found = in_order(work, _TOPICS_AT_A_TIME, "seglog-list") if work else ()
    return sorted((pattern.text,) for pattern in found if pattern is not None)


def _tenants(store: ObjectStore) -> Iterator[str]:
    """Yield the tenants of a base (TENANT-2). Raises `AccessDenied`."""
    try:
        for name in _first_segments(store):
            if is_tenant(name) and any(store.list(f"{name}/{refs_prefix()}", limit=1)):
                yield name
    except AccessDenied as refusal:
        hint = "the credentials of a tenant list its own prefix alone: name it, as in CATALOG.TENANT.TOPIC"
        raise AccessDenied(refusal.url, refusal.cause, hint=hint) from None


def _first_segments(store: ObjectStore) -> Iterator[str]:
    """Yield the first segments of all keys that may be tenants: one request for each, if the store lists in order.

    No tenant begins as a name does up to its first character that no tenant has. So one request passes over all ids of
    volumes that begin alike.
    """
    if not store.is_ordered:
        yield from sorted({key.partition("/")[0] for key in store.list("")})
        return
    behind = ""
    while key := next(iter(store.list("", limit=1, start_after=behind)), None):
        name = key.partition("/")[0]
        if wrong := _NO_TENANT.search(name):
            behind = name[: wrong.start()] + chr(ord(wrong[0]) + 1)
            continue
        yield name
        behind = f"{name}0"  # the character after the slash


def _is_there(volumes: Volumes, pattern: TopicPattern) -> TopicPattern | None:
    try:
        Branches(volumes).resolve(pattern.text, pattern.branch)
    except Missing:  # the name of a deleted topic
        return None
    return pattern


def _history(volumes: Volumes, _: str, vid: Vid) -> Iterator[_Row]:
    for past in retry_if_collected(lambda: volumes.history(vid), lambda history: [*history]):
        commit = past.commit
        records = sum(last + 1 - ref.first_seq for ref, last in past.segments())
        size = sum(ref.data_length for ref, _ in past.segments())
        kind, time = commit.kind.name.lower(), commit.created_at_ms * 1000
        yield commit.lsn, time, kind, past.head_seq, records, size, commit.writer_id, commit.message, str(commit.vid)


def _branches(volumes: Volumes, topic: str, _: Vid) -> Iterator[_Row]:
    branches = Branches(volumes).branches(topic)
    names = {branch.vid: branch.branch for branch in branches}
    for branch in branches:
        fork = (None, None) if branch.parent is None else (names.get(branch.parent.vid), branch.parent.lsn)
        yield branch.branch, *fork, branch.created_at_ms * 1000, str(branch.vid)


def _tags(volumes: Volumes, topic: str, _: Vid) -> Iterator[_Row]:
    for named in Tags(volumes).list(topic):
        tag = named.tag
        yield named.name, tag.branch, tag.point.lsn, tag.point.seq, tag.created_at_ms * 1000, tag.message


def _segments(volumes: Volumes, _: str, vid: Vid) -> Iterator[_Row]:
    for view in volumes.snapshot(vid).segments:
        times = view.ref.min_ts_ms * 1000, view.ref.max_ts_ms * 1000
        yield view.lsn, str(view.ref.sid), view.first, view.last, *times, view.ref.data_length, str(view.vid)


def _columns(text: str) -> tuple[Column, ...]:
    return tuple(Column(*part.strip().split(" ")) for part in text.split(","))


_LISTINGS: Mapping[str, _Listing] = {
    "history": _Listing(
        _columns(
            "lsn bigint, timestamp timestamp, kind string, head_seq bigint, records bigint, bytes bigint, "
            "writer string, message string, volume string"
        ),
        _history,
    ),
    "branches": _Listing(
        _columns("branch string, parent string, parent_lsn bigint, timestamp timestamp, volume string"), _branches
    ),
    "tags": _Listing(
        _columns("tag string, branch string, lsn bigint, seq bigint, timestamp timestamp, message string"), _tags
    ),
    "segments": _Listing(
        _columns(
            "lsn bigint, segment string, first_seq bigint, last_seq bigint, first_timestamp timestamp, "
            "last_timestamp timestamp, bytes bigint, volume string"
        ),
        _segments,
    ),
}

LISTINGS = frozenset({"tenants", "topics", *_LISTINGS})
