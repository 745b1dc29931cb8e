"""Queues: each record of a topic is a job until a worker acks it, `seglog queue ...` (seglog.delivery.queue)."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

from offload.errors import Misuse
from offload.operations.command import About, Command, Directory, TopicName, always
from offload.operations.cursor import lowest_change
from offload.operations.printing import counted, lines, parse_count, parse_span_ms, rows
from offload.operations.result_json import MERGED
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Conflict
from seglog.base.lazy import logger

if TYPE_CHECKING:
    from offload.archive import Archive
    from seglog import Log, Record, Topic
    from seglog.delivery.queue import Queue
    from seglog.delivery.queue_states import QueueStates

TOPIC = "_seglog.queues"
"""The topic of their events, here so that a look for it imports no bitmap."""
Name = Annotated[str, About("The queue.")]
_LONGEST_LEASE_MS = 7 * 24 * 3600 * 1000
_LONGEST_JITTER_MS = 10_000
_MOST_COUNTED = 1_000_000
_log = logger("seglog.daemon")


class OnAck(enum.StrEnum):
    KEEP = "keep"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class QueueListed:
    """A queue. `ready` counts the jobs that a claim could get now, `waiting` those that are due later.

    `reason` says why a claim gets no job now; it is None if it gets one.
    """

    topic: str
    queue: str
    ready: int
    in_flight: int
    waiting: int
    dead: int
    lost: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class QueueShown:
    """A queue and its settings. Each record up to `floor` is done. `lost_from` to `lost_to` has the evicted jobs."""

    listed: QueueListed = field(metadata=MERGED)
    floor: int
    acked_above: int
    epoch: int
    lost_from: int | None
    lost_to: int | None
    lease_ms: int
    max_deliver: int
    on_ack: str
    dead_letter: str | None
    max_in_flight: int | None
    max_dead_per_minute: int
    claim_jitter_ms: int


@dataclass(frozen=True, slots=True)
class QueueDeleted:
    topic: str
    queue: str
    floor: int


@dataclass(frozen=True, slots=True)
class Redriven:
    """Dead letters that were appended again to `to`, up to seq `up_to` of the topic of dead letters."""

    topic: str
    queue: str
    to: str
    letters: int
    up_to: int


LeaseTime = Annotated[str | None, About("How long a worker has a job before it comes again, such as 30s.")]
MaxDeliver = Annotated[int | None, About("A job is dead after so many deliveries.", least=1)]
DeadLetter = Annotated[str | None, About("The topic that gets dead jobs.", metavar="TOPIC", names="plain topic")]
MaxInFlight = Annotated[str | None, About("So many jobs at most are with workers at a time; none: no bound.")]
Jitter = Annotated[
    int | None, About("Claims within so many ms share the jobs evenly; 0: each gets what there is.", least=0)
]
MaxDead = Annotated[int | None, About("The queue pauses when more jobs die within a minute.", least=1)]


def create(
    directory: Directory,
    topic: TopicName,
    name: Annotated[str, About("The new queue.")],
    lease: LeaseTime = "30s",
    max_deliver: MaxDeliver = 5,
    on_ack: Annotated[
        OnAck | None,
        About("keep: the topic stays as it is. delete: an acked job is deleted soon.", shown_default="keep"),
    ] = None,
    dead_letter: DeadLetter = None,
    max_in_flight: MaxInFlight = "none",
    max_dead_per_minute: MaxDead = 100,
    claim_jitter_ms: Jitter = 0,
) -> QueueShown:
    """Make a queue of jobs for workers.

    It hands out each record of a topic to one worker at a time. A worker claims jobs and acks those that it has done. A
    job that is not acked before its lease ends comes again. The daemon serves claims over HTTP, and `client.queue` of
    seglog.connect asks it.
    Example: seglog queue create orders billing --lease 2m --dead-letter orders-dead
    """
    from catalog.format import keys
    from seglog.delivery.cursor import Cursor, key_of
    from seglog.delivery.queue import Queue, QueueSettings

    keys.check_name("queue", name)
    changes = _changes(topic, lease, max_deliver, dead_letter, max_in_flight, max_dead_per_minute, claim_jitter_ms)
    on_ack = on_ack or OnAck.KEEP
    settings = replace(QueueSettings(), on_ack=on_ack.value, **changes)
    if topic.startswith("_seglog."):
        raise Conflict(f"topic {topic} has the daemon's own records, which are no jobs")
    handle = _own_topic(directory, topic)
    if handle.config.durability == "ephemeral":
        text = f"topic {topic} is ephemeral, so its records would be other jobs after a restart"
        raise Conflict(text, hint=f"`seglog topic set {topic} --durability memory` lets the log know them")
    states = loaded_states(directory.log, directory.maybe_archive)
    incarnation, epoch = handle.incarnation(), handle.epoch
    with states.claimed(topic), states.claimed(key_of(topic, name)):
        if states.has(topic, name):
            text = f"topic {topic} has a queue {name} already"
            raise Conflict(text, hint=f"`seglog queue set {topic} {name}` changes it")
        states.check_room()
        _check_alone(directory.log, states, topic, on_ack)
        born_ms = max(_now_ms(), states.newest_born_ms + 1)  # it is the epoch of the letters' producer
        queue = Queue(Cursor(topic, name, incarnation, epoch, handle.earliest_seq - 1), settings, born_ms)
        states.put(queue)
    return _shown(directory.log, states, queue)


def list_queues(
    directory: Directory,
    topic: Annotated[str | None, About("One topic; all without it.", is_argument=True, names="topic")] = None,
) -> Iterator[QueueListed]:
    """List the queues, and what their jobs do."""
    log = directory.log
    if topic is not None:
        log.get_topic(topic)
    states = loaded_states(log, directory.maybe_archive)
    return (listed(states, queue) for queue in states.all(topic))


def show(directory: Directory, topic: TopicName, name: Name) -> QueueShown:
    """Show a queue, and why no job comes.

    The one reason is one of these: the queue is empty or paused, its jobs are in flight, or none is due before a time.
    """
    states = loaded_states(directory.log, directory.maybe_archive)
    return _shown(directory.log, states, states.find(topic, name))


def set_queue(
    directory: Directory,
    topic: TopicName,
    name: Name,
    lease: LeaseTime = None,
    max_deliver: MaxDeliver = None,
    dead_letter: DeadLetter = None,
    max_in_flight: MaxInFlight = None,
    max_dead_per_minute: MaxDead = None,
    claim_jitter_ms: Jitter = None,
    resume: Annotated[bool, About("Let a queue go on that paused because too many jobs died.")] = False,
) -> QueueShown:
    """Change a queue, or let it go on after a pause. The other settings keep their values.

    Leases that workers have keep their deadlines. Example: seglog queue set orders billing --resume
    """
    from seglog.delivery.queue import Event, Kind

    changes = _changes(topic, lease, max_deliver, dead_letter, max_in_flight, max_dead_per_minute, claim_jitter_ms)
    if not changes and not resume:
        raise Misuse("say what to change: `seglog queue set --help` tells the options")
    _own_topic(directory, topic)
    states = loaded_states(directory.log, directory.maybe_archive)
    with states.claimed(f"{topic}/{name}"):
        queue = states.begin(topic, name)
        if resume:
            states.tell(queue, Event(Kind.PAUSED))
        if changes:
            queue.settings, before = replace(queue.settings, **changes), queue.settings
            if queue.settings.dead_letter != before.dead_letter:
                queue.redriven = 0  # it is a seq of the former topic
            try:
                states.put(queue)
            except BaseException:
                queue.rollback()
                raise
    return _shown(directory.log, states, queue)


def delete(directory: Directory, topic: TopicName, name: Name) -> QueueDeleted:
    """Delete a queue. Its leases end, and the records of the topic stay."""
    from seglog.delivery.queue import Event, Kind

    _own_topic(directory, topic)
    states = loaded_states(directory.log, directory.maybe_archive)
    with states.claimed(f"{topic}/{name}"):
        queue = states.begin(topic, name)
        states.tell(queue, Event(Kind.DELETED))
    return QueueDeleted(topic, name, queue.cursor.floor)


def redrive(
    directory: Directory,
    topic: TopicName,
    name: Name,
    to: Annotated[
        str | None,
        About("The topic that gets them; that of the queue without it.", metavar="TOPIC", names="plain topic"),
    ] = None,
) -> Redriven:
    """Append the dead letters of a queue again, as new jobs. Each letter is taken once.

    The letters stay in the topic of dead letters. Example: seglog queue redrive orders billing
    """
    from seglog.delivery.queue import Event, Kind

    target = to or topic
    _own_topic(directory, topic)
    handle = _own_topic(directory, target)
    states = loaded_states(directory.log, directory.maybe_archive)
    with states.claimed(f"redrive {topic}/{name}"):  # not the queue: its claims and acks go on meanwhile
        queue = states.find(topic, name)
        letters = queue.settings.dead_letter
        if letters is None:
            text = f"the queue {queue.key} has no topic of dead letters"
            raise Conflict(text, hint=f"`seglog queue set {queue.key.replace('/', ' ')} --dead-letter TOPIC` names one")
        source, redriven = directory.log.topic(letters), 0
        head_seq = source.head_seq
        for letter in source.read(queue.redriven + 1, head_seq, gaps=True) if source.exists else ():
            redriven += _redrive(handle, queue, letters, letter)
        if redriven:
            handle.inner.sync()
        with states.claimed(queue.key):
            if states.begin(topic, name) is not queue or queue.settings.dead_letter != letters:
                text = f"the queue {queue.key} was made again, or has another topic of dead letters"
                raise Conflict(text, hint="ask again: a letter that went already does not go twice")
            if head_seq > queue.redriven:
                states.tell(queue, Event(Kind.REDRIVEN, number=head_seq))
    return Redriven(topic, name, target, redriven, head_seq)


def _redrive(target: Topic, queue: Queue, letters: str, letter: Any) -> bool:
    """Append a letter of the queue again, unless an interrupted call did. Return whether it is one."""
    from seglog import BatchForgotten, ProducerBatch, Record

    if not isinstance(letter, Record) or (told := letter_of(letter)) is None or told["queue"] != queue.key:
        return False
    producer = ProducerBatch(f"redrive:{queue.key}:{letters}", queue.born_ms, letter.seq, gaps=True)
    try:
        target.append(
            [letter.value], tag=letter.tag, node=told["node"], producer=producer, durability="memory",
            unterminated=letter.unterminated,
        )  # fmt: skip
    except BatchForgotten:  # more than five letters of the interrupted call came behind it
        return False
    return True


def letter_of(record: Record) -> dict[str, Any] | None:
    """Return what the `node` of a dead letter says; None for another record."""
    try:
        told = json.loads(record.node or "")
    except ValueError:
        return None
    is_letter = isinstance(told, dict) and told.keys() == {"queue", "seq", "deliveries", "reason", "node"}
    return told if is_letter else None


def loaded_states(log: Log, archive: Archive | None) -> QueueStates:
    """Return the queues of a log. The first call reads their events, and may wait for the store."""
    from seglog.delivery.queue_states import QueueStates

    states = QueueStates.of(log)
    if states.is_loaded:
        return states
    is_followed = archive is not None and not log.has_topic(TOPIC) and archive.replication.is_replica(TOPIC)

    def records() -> Iterable[Record]:
        if log.has_topic(TOPIC):
            return log.topic(TOPIC).read()
        return archive.read(TOPIC) if archive is not None and is_followed else ()

    cut = (lambda _: None) if archive is None else lambda each: lowest_change(archive, each.topic, each.ts_ms)
    states.load(records, _log.error, cut)
    return states


def delete_acked(log: Log, archive: Archive | None, topic: str) -> int:
    """Delete what the queue of a topic has acked since the last call, if it deletes; with one delete. Return how many.

    Raise what a delete raises.
    """
    if not log.has_topic(TOPIC):
        return 0
    states = loaded_states(log, archive)
    queue = next((each for each in states.all(topic) if each.settings.on_ack == OnAck.DELETE), None)
    if queue is None:
        return 0
    from seglog.values.seq_set import SeqSet

    handle, acked, before = log.topic(topic), queue.stored, queue.deleted
    if handle.epoch != acked.epoch:  # the next change of the queue, or the next look, takes the truncation
        return 0
    first = max(handle.earliest_seq, before.floor + 1)
    above = (seq for seq in acked.acked_above if seq not in before.acked_above)
    parts = [(first, acked.floor)] if first <= acked.floor else []
    seqs = SeqSet.of(chain(parts, ((seq, seq) for seq in above)))
    if seqs and archive is None:
        handle.delete(seqs=seqs, epoch=acked.epoch)
    elif seqs and archive is not None:
        archive.delete(topic, message=f"acked in {queue.key}", seqs=seqs, epoch=acked.epoch)
    if queue.cursor.epoch == acked.epoch:
        queue.deleted = acked
    return len(seqs)


def listed(states: QueueStates, queue: Queue) -> QueueListed:
    """Return what the jobs of a queue do now."""
    now_ms, last = _now_ms(), states.handable_seq(queue)
    due = [each <= now_ms for each in list(queue.waiting.values())]
    reason, in_memory = queue.reason(now_ms, last), states.head_seq(queue) - last
    if reason == "empty" and in_memory > 0:
        reason = (
            f"{counted(in_memory, 'record')} of {queue.cursor.topic} in memory only, and no job before a durable one"
        )
    return QueueListed(
        topic=queue.cursor.topic,
        queue=queue.cursor.name,
        ready=sum(due) + max(0, last - queue.next_seq + 1),
        in_flight=len(queue.jobs),
        waiting=len(due) - sum(due),
        dead=queue.dead,
        lost=queue.lost,
        reason=reason,
    )


def _shown(log: Log, states: QueueStates, queue: Queue) -> QueueShown:
    settings, cursor = queue.settings, queue.cursor
    return QueueShown(
        listed(states, queue),
        floor=cursor.floor,
        acked_above=len(cursor.above),
        epoch=log.topic(cursor.topic).epoch,
        lost_from=queue.lost_from or None,
        lost_to=queue.lost_to or None,
        lease_ms=settings.lease_ms,
        max_deliver=settings.max_deliver,
        on_ack=settings.on_ack,
        dead_letter=settings.dead_letter,
        max_in_flight=settings.max_in_flight,
        max_dead_per_minute=settings.max_dead_per_minute,
        claim_jitter_ms=settings.claim_jitter_ms,
    )


def _changes(
    topic: str,
    lease: str | None,
    max_deliver: int | None,
    dead_letter: str | None,
    max_in_flight: str | None,
    max_dead_per_minute: int | None,
    claim_jitter_ms: int | None,
) -> dict[str, Any]:
    """Return the settings that the options give. Raise `Misuse`, and `Conflict` for a topic that gets no letters."""
    changes: dict[str, Any] = {"max_deliver": max_deliver, "dead_letter": dead_letter}
    changes |= {"max_dead_per_minute": max_dead_per_minute, "claim_jitter_ms": claim_jitter_ms}
    changes = {name: value for name, value in changes.items() if value is not None}
    if lease is not None:
        changes["lease_ms"] = parse_span_ms("--lease", lease)
        if not 1 <= changes["lease_ms"] <= _LONGEST_LEASE_MS:
            raise Misuse("--lease is from 1ms to 7d: a worker that needs longer extends its lease")
    for option, name, most in (
        ("--max-deliver", "max_deliver", _MOST_COUNTED),
        ("--max-dead-per-minute", "max_dead_per_minute", _MOST_COUNTED),
        ("--claim-jitter-ms", "claim_jitter_ms", _LONGEST_JITTER_MS),
    ):
        if changes.get(name, 0) > most:
            raise Misuse(f"{option} is at most {most:,}")
    if max_in_flight is not None:
        changes["max_in_flight"] = parse_count(max_in_flight)
    if dead_letter is not None:
        from catalog.format import keys

        keys.check_name("topic", dead_letter)
        if dead_letter == topic or dead_letter.startswith("_"):
            hint = "name another topic, which the daemon does not write itself"
            raise Conflict(f"topic {dead_letter} gets no dead letters of {topic}", hint=hint)
    return changes


def _check_alone(log: Log, states: QueueStates, topic: str, on_ack: OnAck) -> None:
    """Raise `Conflict` if the topic would have a queue that deletes beside another one, or is a stream that it eats."""
    others = states.all(topic)
    deleting = [queue.key for queue in others if queue.settings.on_ack == OnAck.DELETE]
    if deleting or (others and on_ack is OnAck.DELETE):
        text = f"a queue that deletes is the only one of its topic, and {topic} has {(deleting or [others[0].key])[0]}"
        raise Conflict(text, hint="make the queue with --on-ack keep, or delete the other one")
    if on_ack is OnAck.DELETE and _is_stream(log, topic):
        text = f"topic {topic} is a stream, and its readers count its records"
        raise Conflict(text, hint="make the queue with --on-ack keep")


def _is_stream(log: Log, topic: str) -> bool:
    """Return whether a stream of the daemon has its records in the topic (offload.daemon.streams.entries)."""
    states = dict[str, tuple[str, str]]()
    for record in log.topic("_streams").read() if log.has_topic("_streams") else ():
        entry = json.loads(record.value)
        states[entry["path"]] = entry["topic"], entry["state"]
    return any(name == topic and state not in {"dying", "gone"} for name, state in states.values())


def _own_topic(directory: Directory, topic: str) -> Topic:
    """Return a topic that this directory writes: the queues of a replica are with its writer."""
    archive = directory.maybe_archive
    if archive is not None:
        archive.replication.check_not_followed(topic)
    return directory.log.get_topic(topic)


def _now_ms() -> int:
    from seglog import SystemClock

    return SystemClock().now_ms()


def listed_text(queue: QueueListed) -> str:
    counts = f"{queue.ready:,} ready, {queue.in_flight:,} in flight, {queue.waiting:,} later, {queue.dead:,} dead"
    lost = f", {queue.lost:,} lost" if queue.lost else ""
    return f"{queue.topic}/{queue.queue}: {counts}{lost}{f'; {queue.reason}' if queue.reason else ''}"


def shown_text(queue: QueueShown) -> str:
    most = "no bound" if queue.max_in_flight is None else f"{queue.max_in_flight:,}"
    above = f", {queue.acked_above:,} above it" if queue.acked_above else ""
    lost = f"\n  lost to eviction: seq {queue.lost_from} to {queue.lost_to}" if queue.lost_from else ""
    letters = queue.dead_letter or "counted, and kept nowhere"
    rules = f"lease {queue.lease_ms / 1000:g} s, max deliver {queue.max_deliver}, on ack {queue.on_ack}"
    return (
        f"{listed_text(queue.listed)}\n  done up to seq {queue.floor:,}{above}{lost}\n"
        f"  {rules}, dead letters: {letters}\n"
        f"  max in flight {most}, max dead per minute {queue.max_dead_per_minute}, jitter {queue.claim_jitter_ms} ms"
    )


def _row(queue: QueueListed) -> Sequence[str]:
    numbers = queue.ready, queue.in_flight, queue.waiting, queue.dead, queue.lost
    return queue.topic, queue.queue, *map(str, numbers), queue.reason or ""


_print_shown = lines(shown_text)
_print_listed = rows(
    ("topic", "queue", "ready", "in flight", "later", "dead", "lost", "no job because"), _row, listed_text
)
_print_deleted = lines(lambda gone: f"queue {gone.topic}/{gone.queue} is deleted; it was behind seq {gone.floor}")
_print_redriven = lines(
    lambda done: f"{counted(done.letters, 'letter')} of {done.topic}/{done.queue} went to {done.to}"
)

QUEUE_CREATE = Command("queue/create", create, _print_shown, role="admin")
QUEUE_LIST = Command("queue/list", list_queues, _print_listed, reads=always, role="read")
QUEUE_SHOW = Command("queue/show", show, _print_shown, reads=always, role="read")
QUEUE_SET = Command("queue/set", set_queue, _print_shown, role="admin")
QUEUE_DELETE = Command("queue/delete", delete, _print_deleted, role="admin")
QUEUE_REDRIVE = Command("queue/redrive", redrive, _print_redriven, role="admin")
