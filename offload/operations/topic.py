"""Topics and their configuration: `seglog topic ...`."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from offload.errors import Misuse
from offload.operations.command import About, Command, Directory, DryRun, PlainTopicName, Yes, always, dry
from offload.operations.printing import (
    WouldTake,
    check_meant,
    counted,
    lines,
    parse_bytes,
    parse_count,
    parse_duration_ms,
    parse_span_s,
    rows,
    taking_lines,
    would,
)
from offload.operations.result_json import HIDDEN, MERGED
from offload.operations.router import TOPIC as ROUTERS_TOPIC
from offload.operations.router import check_kept
from seglog import NoSuchTopic
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from offload.archive import Archive
    from seglog import Topic, TopicConfig


_LEAST_PRIORITY = -250


class Switch(enum.StrEnum):
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class TopicMade:
    topic: str
    codec: str | None
    durability: str


@dataclass(frozen=True, slots=True)
class TopicConfigured:
    topic: str
    config: Mapping[str, Any] = field(metadata=MERGED)


@dataclass(frozen=True, slots=True)
class TopicPlaces:
    """The bounds and sizes of a topic. A replica has no hot records, and no epoch of its own."""

    earliest_seq: int
    head_seq: int
    hot_first_seq: int
    evict_floor: int
    epoch: int
    hot_bytes: int
    relocated_bytes: int


@dataclass(frozen=True, slots=True)
class TopicDescribed:
    topic: str
    is_replica: bool
    places: TopicPlaces = field(metadata=MERGED)
    config: Mapping[str, Any] = field(metadata=MERGED)


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic that is gone for good. The remote had nothing of it."""

    topic: str
    deleted: bool
    outcome: str


@dataclass(frozen=True, slots=True)
class TopicGone:
    """A topic that is gone from this directory only. The remote has it up to `lsn`, or nothing of it if that is None.

    `dropped` and `deletes` count the local records and deletes that are gone.
    """

    topic: str
    deleted: bool
    outcome: str
    lsn: int | None
    dropped: int
    deletes: int = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class TopicListed:
    topic: str
    head_seq: int
    hot_first_seq: int
    is_replica: bool


def create(
    directory: Directory,
    topic: PlainTopicName,
    codec: Annotated[str | None, About("How it is offloaded: zstd (small) or none (Apache Pulsar's format).")] = None,
    durability: Annotated[str, About("When an append is acked: fsync, disk, memory or ephemeral (never written).")] = (
        "fsync"
    ),
    priority: Annotated[
        int, About("Followers of a higher one get news first: -250 to 1000.", least=_LEAST_PRIORITY)
    ] = 0,
    auto_priority: Annotated[Switch | None, About("Recent consumption adds up to 250 to it: on or off.")] = None,
) -> TopicMade:
    """Make a topic with a configuration of its own. Without this the first append makes it, with the defaults."""
    from catalog.format import keys
    from offload.settings import codec_named
    from seglog import TopicConfig

    keys.check_name("topic", topic)  # a branch is made by `seglog branch create`
    if codec is not None:
        codec_named(codec)
    attributes = {"codec": codec} if codec else {}
    archive = directory.maybe_archive
    if archive is not None:
        archive.replication.check_not_followed(topic)
    keep_history = archive is not None and durability != "ephemeral"
    config = TopicConfig(
        durability=durability,
        keep_history=keep_history,
        attributes=attributes,
        priority=priority,
        auto_priority=auto_priority == Switch.ON,
    )
    directory.log.create_topic(topic, config)
    return TopicMade(topic, codec, durability)


def set_config(
    directory: Directory,
    topic: PlainTopicName,
    ttl: Annotated[str | None, About("Show nothing older, such as 12h or 7d, and evict it; none: never.")] = None,
    cap_records: Annotated[str | None, About("Keep about so many records on this disk; none: all.")] = None,
    cap_bytes: Annotated[str | None, About("Keep about so many bytes, such as 10GB; none: all.")] = None,
    discard: Annotated[str | None, About("At a cap: old (evict the oldest) or reject (refuse the append).")] = None,
    durability: Annotated[
        str | None, About("When an append is acked: fsync, disk, memory or ephemeral (never written).")
    ] = None,
    offload_after: Annotated[
        str | None, About("Offload a sealed segment that old, such as 10m; never; default.")
    ] = None,
    offload_hot_bytes: Annotated[
        str | None, About("Or when newer ones hold so much, such as 1GB; never; default.")
    ] = None,
    tail_interval: Annotated[str | None, About("Seal and offload the tail that often; never; default.")] = None,
    window: Annotated[str | None, About("Keep every past state that long, such as 30d; 0; default.")] = None,
    priority: Annotated[
        int | None, About("Followers of a higher one get news first: -250 to 1000.", least=_LEAST_PRIORITY)
    ] = None,
    auto_priority: Annotated[Switch | None, About("Recent consumption adds up to 250 to it: on or off.")] = None,
) -> TopicConfigured:
    """Change how a topic keeps and offloads its records. The other options keep their values.

    Retention deletes whole sealed segments, so a topic keeps somewhat more than its cap. With a remote, it deletes a
    segment only after the segment is offloaded and read back. The remote learns a new window with the next offload. A
    replica has the configuration of its writer.

    Example: seglog topic set access --ttl 30d --cap-bytes 50GB
    """
    changes = _config_changes(ttl, cap_records, cap_bytes, discard, durability)
    if priority is not None:
        changes["priority"] = priority
    if auto_priority is not None:
        changes["auto_priority"] = auto_priority == Switch.ON
    triggers = _attribute_changes(offload_after, offload_hot_bytes, tail_interval, window)
    if not changes and not triggers:
        raise Misuse("say what to change: `seglog topic set --help` tells the options")
    if directory.maybe_archive is not None:
        directory.maybe_archive.replication.check_not_followed(topic)
    if durability == "ephemeral" and directory.log.has_topic(ROUTERS_TOPIC):
        check_kept(directory.log, directory.maybe_archive, topic)

    def changed(config: TopicConfig) -> TopicConfig:
        attributes = {**config.attributes, **triggers}
        chosen = {key: text for key, text in attributes.items() if text is not None}
        return replace(config, attributes=chosen, **changes)

    config = directory.log.reconfigure(topic, changed)
    with suppress(NoSuchTopic):  # it may have left the log since
        directory.log.topic(topic).enforce_retention()
    return TopicConfigured(topic, config.to_json())


def show(directory: Directory, topic: PlainTopicName) -> TopicDescribed:
    """Show a topic's configuration and its bounds. A replica is shown as of its last sync."""
    archive = directory.maybe_archive
    if archive is not None and archive.replication.is_replica(topic):
        config = archive.replication.config(topic)
        return TopicDescribed(topic, True, _places_of_replica(archive, topic), config.to_json())
    handle = directory.log.get_topic(topic)
    return TopicDescribed(topic, False, places_of(handle), handle.config.to_json())


def places_of(topic: Topic) -> TopicPlaces:
    return TopicPlaces(
        earliest_seq=topic.earliest_seq,
        head_seq=topic.head_seq,
        hot_first_seq=topic.inner.hot_floor,
        evict_floor=topic.inner.evict_floor,
        epoch=topic.epoch,
        hot_bytes=topic.inner.bytes_hot,
        relocated_bytes=topic.inner.bytes_relocated,
    )


def _places_of_replica(archive: Archive, name: str) -> TopicPlaces:
    state = archive.status.topic(name)
    return TopicPlaces(
        earliest_seq=state.earliest_seq,
        head_seq=state.head_seq,
        hot_first_seq=state.hot_first_seq,
        evict_floor=state.evict_floor,
        epoch=state.epoch,
        hot_bytes=state.hot_bytes,
        relocated_bytes=state.relocated_bytes,
    )


def delete(
    directory: Directory,
    topic: PlainTopicName,
    detach: Annotated[bool, About("If it has a history in the remote: delete it in this directory only.")] = False,
    discard: Annotated[bool, About("With --detach: drop the records that are not offloaded, for good.")] = False,
    message: Annotated[str, About("Why, for the oplog of a topic with a history in the remote.", "-m --message")] = "",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> TopicDeleted | TopicGone | WouldTake:
    """Delete a topic and all its records for good. This is for a topic of which the remote has nothing.

    If the topic has a history in the remote, the command needs --detach. It then offloads the rest, reads all of it
    back, and deletes the topic in this directory only. `seglog sync TOPIC` follows the topic again, and `seglog
    takeover TOPIC` writes it again. `seglog branch delete` deletes a branch in the remote. A replica is no longer
    followed.
    """
    from offload.services.previews import preview_of_all

    check_meant(f"this deletes {topic} and all its records here", yes=yes, dry_run=dry_run)
    if discard and not detach:
        raise Misuse("--discard goes with --detach")
    archive = directory.maybe_archive
    if dry_run and archive is None:
        return would("topic delete", topic, preview_of_all(directory.log.get_topic(topic)))
    if dry_run:
        return would("topic delete", topic, directory.archive.previews.topic(topic, detach=detach, discard=discard))
    if archive is None:
        directory.log.delete_topic(topic)
        return TopicDeleted(topic, deleted=True, outcome="deleted")
    gone = archive.delete_topic(topic, detach=detach, discard=discard, message=message)
    if gone.outcome == "deleted":
        return TopicDeleted(topic, deleted=True, outcome="deleted")
    return TopicGone(topic, False, gone.outcome, gone.lsn, gone.records, gone.deletes)


def list_topics(directory: Directory) -> Iterator[TopicListed]:
    """List the topics of this directory. It also lists those that it only follows."""
    log, archive = directory.log, directory.maybe_archive
    replicas = archive.replication.replicas() if archive is not None else []
    for name in sorted({*log.topics(), *replicas}):
        if archive is not None and name in replicas:
            state = archive.status.topic(name)
            yield TopicListed(name, state.head_seq, state.hot_first_seq, is_replica=True)
        else:
            topic = log.topic(name)
            yield TopicListed(name, topic.head_seq, topic.inner.hot_floor, is_replica=False)


def _config_changes(
    ttl: str | None, cap_records: str | None, cap_bytes: str | None, discard: str | None, durability: str | None
) -> dict[str, Any]:
    """Return the new fields of the configuration. Raises `Misuse`."""
    changes: dict[str, Any] = {}
    if ttl is not None:
        changes["ttl_ms"] = parse_duration_ms(ttl)
    if cap_records is not None:
        changes["cap_records"] = parse_count(cap_records)
    if cap_bytes is not None:
        changes["cap_bytes"] = parse_bytes(cap_bytes)
    if discard is not None:
        changes["discard"] = discard
    if durability is not None:
        changes["durability"] = durability
    return changes


def _attribute_changes(
    offload_after: str | None, offload_hot_bytes: str | None, tail_interval: str | None, window: str | None
) -> dict[str, str | None]:
    """Return the new attributes. None removes an attribute: the setting holds again. Raises `Misuse`."""
    own = {"offload_after_s": offload_after, "offload_hot_bytes": offload_hot_bytes, "tail_interval_s": tail_interval}
    triggers = {key: _trigger(key, text) for key, text in own.items() if text is not None}
    return triggers if window is None else {**triggers, "pitr_window_s": _window(window)}


def _trigger(key: str, text: str) -> str | None:
    from offload.settings import NEVER, trigger_overrides

    if text == "default":
        return None
    if text == NEVER:
        return text
    option = f"--{key.removesuffix('_s').replace('_', '-')}"
    value = parse_bytes(text) if key.endswith("_bytes") else parse_span_s(option, text, ", never or default")
    trigger_overrides({key: str(value)})
    return str(value)


def _window(text: str) -> str | None:
    """Return the window in seconds, as an attribute of the topic."""
    if text in {"default", "0"}:
        return None if text == "default" else text
    return str(parse_span_s("--window", text, ", 0, or default"))


def configured_text(done: TopicConfigured) -> str:
    values = [f"{key} {value}" for key, value in done.config.items() if value is not None and key != "attributes"]
    return f"{done.topic}: {', '.join(values)}"


def shown_text(topic: TopicDescribed) -> str:
    rows = {"role": "replica" if topic.is_replica else None, **asdict(topic.places), **topic.config}
    return "\n".join(f"{key:<15} {value}" for key, value in rows.items() if value is not None)


def gone_text(gone: TopicDeleted | TopicGone) -> str:
    topic = gone.topic
    if isinstance(gone, TopicDeleted):
        return f"deleted topic {topic} with all its records: this directory had offloaded none of them"
    begun = f"{topic} is {'gone from this directory' if gone.outcome == 'detached' else 'followed here no more'}"
    if gone.dropped or gone.deletes:
        begun += f"; {counted(gone.dropped)} and {counted(gone.deletes, 'delete')} that only it had were dropped"
    if gone.lsn is None:
        return f"{begun}; the remote has nothing of it: its volume was collected"
    again = f"`seglog sync {topic}` follows it again, `seglog takeover {topic}` writes it again"
    return f"{begun}; the remote keeps it up to lsn {gone.lsn}: {again}"


def listed_text(topic: TopicListed) -> str:
    return f"{topic.topic:<32} up to seq {topic.head_seq:,}{', replica' if topic.is_replica else ''}"


def _listed_row(topic: TopicListed) -> tuple[str, str, str]:
    return topic.topic, f"{topic.head_seq:,}", "replica" if topic.is_replica else "writer"


_print_listed = rows(("topic", "head seq", "role"), _listed_row, listed_text)


TOPIC_CREATE = Command("topic/create", create, lines(lambda made: f"made topic {made.topic}"))
TOPIC_SET = Command("topic/set", set_config, lines(configured_text))
TOPIC_SHOW = Command("topic/show", show, lines(shown_text), reads=always, role="read")
TOPIC_DELETE = Command("topic/delete", delete, taking_lines(gone_text), reads=dry, takes=always)
TOPIC_LIST = Command(
    "topic/list", list_topics, _print_listed, reads=always, role="read", section="everyday", aliases=("ls",)
)
