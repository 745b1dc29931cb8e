"""The conditions of an append, from the headers of its request.

    Producer-Id, Producer-Epoch, Producer-Seq    the batch of a producer (seglog.values.producer); all three or none
    seglog-if-head                               the last seq of the topic, 0 for an empty one

CONDITION-1  An append with a condition is all or none.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import Headers

from offload.daemon.http.parameters import whole
from offload.errors import InvalidOption
from seglog import InvalidArgument, ProducerBatch

__all__ = ["Conditions", "conditions_of"]

_PRODUCER = ("Producer-Id", "Producer-Epoch", "Producer-Seq")
_IF_HEAD = "seglog-if-head"


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions that the request names. None stands for each one that it does not name."""

    producer: ProducerBatch | None = None
    if_head: int | None = None

    @property
    def is_any(self) -> bool:
        return self.producer is not None or self.if_head is not None

    @property
    def is_repeatable(self) -> bool:
        """Return whether the client may repeat the request, so that its records are there once."""
        return self.producer is not None


_NONE = Conditions()


def conditions_of(headers: Headers) -> Conditions:
    """Return the conditions. Raises `InvalidOption` with the name of a header."""
    given = [name for name in (*_PRODUCER, _IF_HEAD) if name in headers]
    if not given:
        return _NONE
    for name in given:
        if len(headers.getlist(name)) > 1:
            raise InvalidOption(name, "the request has it more than once")
    return Conditions(_producer(headers), whole(headers, _IF_HEAD))


def _producer(headers: Headers) -> ProducerBatch | None:
    absent = [name for name in _PRODUCER if name not in headers]
    if len(absent) == len(_PRODUCER):
        return None
    if absent:
        raise InvalidOption(absent[0], f"the request lacks it; {', '.join(_PRODUCER)} come together")
    epoch, number = whole(headers, "Producer-Epoch"), whole(headers, "Producer-Seq")
    assert epoch is not None  # noqa: S101 - the header is there
    assert number is not None  # noqa: S101
    try:
        return ProducerBatch(headers["Producer-Id"].encode("latin-1").decode(), epoch, number)
    except (UnicodeDecodeError, InvalidArgument):
        raise InvalidOption("Producer-Id", "it has 1 to 256 bytes of UTF-8") from None
