"""The conditions of an append: its identity, and the head and the topic that its caller expects.

    producer         the batch is appended once, however often its append is repeated (seglog.values.producer)
    key              the values are appended once, however often their append is repeated (seglog.values.append_key)
    if_head          the records come right after this seq, or the append is refused
    if_incarnation   the topic still has this incarnation (`Topic.incarnation`), or the append is refused

The log compares the incarnation under the lock that assigns seqs. An earlier comparison may be outdated, as here:

    1  Producer P appends batch 0 to a topic of incarnation A. The topic has it, but the answer is lost.
    2  P repeats the batch, and names A. A caller of the log, such as the daemon, finds that the topic has A.
    3  An operator resets the topic, and the archive deletes it here. The next append opens it again with the records
       of the remote, batch 0 among them. The topic now has incarnation B, and knows no producer.
    4  The append of step 2 takes the lock, after it may have waited for the deletion. Without a comparison here, the
       log appends batch 0 a second time.

APPENDIF-1  A repetition returns its seqs whatever `if_head` says. The first append has moved the head.
APPENDIF-2  The head includes appends in flight. If one of them fails, an append behind it fails with it.
APPENDIF-3  The topic that gets the records has the incarnation `if_incarnation`. No topic is made for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from seglog.base.arguments import kind_of, taken
from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import HeadMoved, InvalidArgument, InvalidSetting, OtherIncarnation
from seglog.tiers.warm_directory import known_log_id, log_id
from seglog.values.append_key import GivenKey, check_key, repeated_key
from seglog.values.producer import ProducerBatch, repeated

AHEAD_MS = 5 * 60 * 1000
_SEQ: Any = kind_of(int)
_TEXT: Any = kind_of(str)


def check_given(producer: object, key: object, if_head: object, if_incarnation: object) -> None:
    """Raise `InvalidArgument` for a value that is no condition, and for a producer together with a key."""
    if producer is not None and type(producer) is not ProducerBatch and not isinstance(producer, ProducerBatch):
        raise InvalidArgument("producer", producer, "a ProducerBatch or None")
    if key is not None:
        check_key(plain_key(key))
        if producer is not None:
            raise InvalidArgument("key", key, "None, because the batch of a producer has an identity already")
    if if_head is not None:
        taken("if_head", if_head, _SEQ)
    if if_incarnation is not None:
        taken("if_incarnation", if_incarnation, _TEXT)


def plain_key(key: object) -> str:
    """Return the key as a plain text. Raise `InvalidArgument` for anything but a text.

    A subclass of `str` may hash and compare in its own way. The manifest would then have one key twice.
    """
    text: str = taken("key", key, _TEXT)
    return text


def plain_times(times_ms: object) -> tuple[int, ...]:
    """Return times as the log keeps them. Raise `InvalidArgument` unless they are whole numbers that ascend."""
    if not isinstance(times_ms, Iterable) or isinstance(times_ms, str | bytes):
        raise InvalidArgument("times_ms", times_ms, "a sequence of whole numbers or None")
    times: tuple[int, ...] = tuple(taken("times_ms", each, _SEQ) for each in times_ms)
    for before, after in pairwise(times):
        if after < before:
            raise InvalidArgument("times_ms", after, f"{before} or later, the time of the value before it")
    return times


def check_times(times_ms: tuple[int, ...], now_ms: int, last_ms: int, durability: str) -> None:
    """Raise `InvalidArgument` for times that the topic cannot take now, and `InvalidSetting` for ephemeral records.

    Later records get no time below. So a time that is far ahead of the clock would stay theirs until then.
    """
    if durability == "ephemeral":
        raise InvalidSetting("durability", "ephemeral records have no times of their own, because they end soon")
    if times_ms[0] < last_ms:
        raise InvalidArgument("times_ms", times_ms[0], f"{last_ms} or later, the time of the newest record")
    if times_ms[-1] > now_ms + AHEAD_MS:
        raise InvalidArgument("times_ms", times_ms[-1], f"at most five minutes ahead of the clock, which says {now_ms}")


def check_conditions(
    engine: Engine,
    name: str,
    state: TopicState | None,
    records: int,
    durability: str | None,
    producer: ProducerBatch | None,
    key: GivenKey | None,
    if_head: int | None,
    if_incarnation: str | None,
) -> tuple[TopicState, range] | None:
    """Return None if the append may begin. If the topic has its records already, return its state and their seqs.

    `state` is None if there is no topic. The caller holds the lock, and no seq is assigned yet.
    Raises `OtherIncarnation`, `ProducerFenced`, `ProducerGap`, `BatchForgotten`, `BatchReused`, `KeyReused`,
    `TooManyKeys`, `HeadMoved`, and `InvalidSetting` for a producer or a key of ephemeral records.
    """
    engine.committer.check_open()
    if if_incarnation is not None:
        check_incarnation(engine, name, state, if_incarnation)
    if producer is not None or key is not None:
        config = engine.topic_defaults if state is None else state.config
        if (durability or config.durability) == "ephemeral":
            reason = "ephemeral records have no producer and no key, because they are never written"
            raise InvalidSetting("durability", reason)
    seqs = None
    if producer is not None:
        former = None if state is None or state.producers is None else state.producers.find(producer.id)
        seqs = repeated(name, former, producer, records)
    elif key is not None and state is not None:
        seqs = _seqs_of_key(engine, name, state, key)
    if state is not None and seqs is not None:
        return state, seqs
    if if_head is not None:
        check_head(name, 0 if state is None else state.assigned_seq, if_head)
    return None


def check_head(name: str, head: int, if_head: int) -> None:
    """Raise `HeadMoved` if the caller expects another head."""
    if if_head != head:
        raise HeadMoved(name, if_head, head)


def check_incarnation(engine: Engine, name: str, state: TopicState | None, expected: str) -> None:
    """Raise `OtherIncarnation` if the caller expects another incarnation of the topic. `know_log_id` was called."""
    current = None if state is None else incarnation_of(engine, state)
    if current != expected:
        raise OtherIncarnation(name, expected, current)


def incarnation_of(engine: Engine, state: TopicState) -> str:
    """Return the incarnation of a topic. `know_log_id` was called."""
    return f"{engine.log_id}-{state.topic_id:08x}"


def known_incarnation(engine: Engine, state: TopicState) -> str | None:
    """Return the incarnation of a topic, or None as long as the log has no id of its own. Make none."""
    if engine.log_id is None:
        engine.log_id = known_log_id(engine.files, engine.layout)
    return None if engine.log_id is None else incarnation_of(engine, state)


def know_log_id(engine: Engine) -> None:
    """Read the log's own id, unless the engine knows it. If there is none, make one, durably.

    Raises `FileCorrupt`, and errors of the disk.
    """
    if engine.log_id is None:
        engine.log_id = log_id(engine.files, engine.layout)


def _seqs_of_key(engine: Engine, name: str, state: TopicState, key: GivenKey) -> range | None:
    """Return the seqs of a repetition, or None. Forget the keys that are too old before that."""
    keys = state.with_keys() if state.keys is None else state.keys
    keys.keep_ms = engine.settings.idempotency_keep_s * 1000
    now_ms = engine.clock.now_ms()
    keys.forget_until(now_ms)
    seqs = repeated_key(name, keys.find(key.key), key)
    if seqs is None:
        keys.check_room(name, now_ms)
    return seqs
