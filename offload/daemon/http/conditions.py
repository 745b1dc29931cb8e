"""The conditions of an append, from the headers of its request.

    Producer-Id, Producer-Epoch, Producer-Seq    the batch of a producer (seglog.values.producer); all three or none
    Idempotency-Key                              a key of the append (seglog.values.append_key), without a producer
    seglog-if-head                               the last seq of the topic, 0 for an empty one
    seglog-if-incarnation                        the incarnation of the topic (`Topic.incarnation`)

CONDITION-1  An append with a condition is all or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers

from offload.daemon.http.parameters import whole
from offload.errors import InvalidOption
from seglog import ProducerBatch
from seglog.values.producer import ID_MAX_BYTES

__all__ = ["CONDITION_HEADERS", "Conditions", "conditions_of"]

_PRODUCER = ("Producer-Id", "Producer-Epoch", "Producer-Seq")
_KEY = "Idempotency-Key"
_IF_HEAD = "seglog-if-head"
_IF_INCARNATION = "seglog-if-incarnation"
CONDITION_HEADERS = (*_PRODUCER, _KEY, _IF_HEAD, _IF_INCARNATION)
"""The headers of an append that name a condition."""

_NAMES = {name.lower().encode(): name for name in CONDITION_HEADERS}


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions that the request names. None stands for each one that it does not name."""

    producer: ProducerBatch | None = None
    key: str | None = None
    if_head: int | None = None
    if_incarnation: str | None = None

    @property
    def is_any(self) -> bool:
        return self.is_repeatable or self.if_head is not None or self.if_incarnation is not None

    @property
    def is_repeatable(self) -> bool:
        """Return whether the client may repeat the request, so that its records are there once."""
        return self.producer is not None or self.key is not None


_NONE = Conditions()


def conditions_of(headers: Headers) -> Conditions:
    """Return the conditions. Raises `InvalidOption` with the name of a header."""
    given: dict[str, str] = {}
    for raw, value in headers.raw:
        name = _NAMES.get(raw)
        if name in given:
            raise InvalidOption(name, "the request has it more than once")
        if name is not None:
            given[name] = value.decode("latin-1")
    if not given:
        return _NONE
    producer, key = _producer(given), _key(given)
    if producer is not None and key is not None:
        raise InvalidOption(_KEY, "a batch of a producer has an identity already; send one of the two")
    return Conditions(producer, key, whole(given, _IF_HEAD), given.get(_IF_INCARNATION))


def _producer(headers: Mapping[str, str]) -> ProducerBatch | None:
    absent = [name for name in _PRODUCER if name not in headers]
    if len(absent) == len(_PRODUCER):
        return None
    if absent:
        raise InvalidOption(absent[0], f"the request lacks it; {', '.join(_PRODUCER)} come together")
    epoch, number = whole(headers, "Producer-Epoch"), whole(headers, "Producer-Seq")
    assert epoch is not None  # noqa: S101 - the header is there
    assert number is not None  # noqa: S101
    return ProducerBatch(_text(headers, "Producer-Id"), epoch, number)


def _key(headers: Mapping[str, str]) -> str | None:
    return _text(headers, _KEY) if _KEY in headers else None


def _text(headers: Mapping[str, str], name: str) -> str:
    """Return the text of a header. Raises `InvalidOption` unless it has 1 to 256 bytes of UTF-8."""
    raw = headers[name].encode("latin-1")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or len(raw) > ID_MAX_BYTES:
        raise InvalidOption(name, f"it has 1 to {ID_MAX_BYTES} bytes of UTF-8")
    return text
