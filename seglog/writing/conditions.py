"""The conditions of an append: the batch of a producer (seglog.values.producer), and the head that its caller expects.

    producer   the batch is appended once, however often its append is repeated
    if_head    the records come right after this seq, or the append is refused

APPENDIF-1  A repetition returns its seqs whatever `if_head` says. The first append of the batch has moved the head.
APPENDIF-2  The head includes appends in flight. If one of them fails, an append behind it fails with it.
"""

from __future__ import annotations

from typing import Any

from seglog.arguments import kind_of, taken
from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import HeadMoved, InvalidArgument, InvalidSetting
from seglog.values.producer import ProducerBatch, repeated

__all__ = ["check_conditions", "check_given"]

_SEQ: Any = kind_of(int)


def check_given(producer: object, if_head: object) -> None:
    """Raise `InvalidArgument` for a value that is no condition."""
    if producer is not None and not isinstance(producer, ProducerBatch):
        raise InvalidArgument("producer", producer, "a ProducerBatch or None")
    if if_head is not None:
        taken("if_head", if_head, _SEQ)


def check_conditions(
    engine: Engine,
    name: str,
    state: TopicState | None,
    records: int,
    durability: str | None,
    producer: ProducerBatch | None,
    if_head: int | None,
) -> tuple[TopicState, range] | None:
    """Return None if the append may begin. If the topic has the batch already, return its state and the batch's seqs.

    `state` is None if there is no topic. The caller holds the lock, and no seq is assigned yet.
    Raises `ProducerFenced`, `ProducerGap`, `BatchForgotten`, `HeadMoved`, and `InvalidSetting` for a producer of
    ephemeral records.
    """
    engine.committer.check_open()
    if producer is not None:
        config = engine.topic_defaults if state is None else state.config
        if (durability or config.durability) == "ephemeral":
            raise InvalidSetting("durability", "ephemeral records have no producer, because they are never written")
        known = None if state is None or state.producers is None else state.producers.find(producer.id)
        seqs = repeated(name, known, producer, records)
        if state is not None and seqs is not None:
            return state, seqs
    head = 0 if state is None else state.assigned_seq
    if if_head is not None and if_head != head:
        raise HeadMoved(name, if_head, head)
    return None
