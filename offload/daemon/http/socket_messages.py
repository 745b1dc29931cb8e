"""The messages of a WebSocket, each a JSON object as a text. A client sends the first table, and gets the second.

    do           members                                              answer
    subscribe    id, topic, from | tail | last | cursor, tag,         subscribed, then records
                 exclude_node, gaps, credit
    credit       id, records: so many more may be sent                none
    unsubscribe  id                                                   unsubscribed
    append       id, topic, records, tag, node, durability, whole,    appended
                 key, producer, if_head, if_incarnation
    ack          id, topic, cursor, seqs, epoch                       acked

    is           members                                              when
    subscribed   id, topic, last unless `truncated` comes first       before the first records
    records      id, last, records: the JSON line of each, also of    news
                 gaps
    truncated    id, last, from: all records from there on are void   a truncation
    end          id, reason, error                                    no records follow
    unsubscribed id                                                   the same, because the client asked
    appended     id, and the members of the answer to a POST          the records are in
    acked        id, last                                             the ack is durable
    error        id, error: the problem (offload.daemon.problems)     a message is bad, or its work failed

`id` is a number that the client chooses. An answer repeats it; it is null if a message has none. `last` is epoch-seq:
the client has all that it asked for up to there, and resumes with it.

SAID-1  A message with an unknown member, or a value that does not fit, changes nothing.
SAID-2  An append is the head and the body of a POST of JSON lines, and goes its way (offload.daemon.http.appends).
    So each check, condition and quota holds for both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Final, TypeAlias, get_type_hints
from urllib.parse import urlencode

from offload.daemon.problems import error_answer
from offload.errors import InvalidOption, Misuse
from seglog.base.arguments import Kind, kind_of, taken
from seglog.base.dataclasses import dataclass
from seglog.client.bodies import JSON_LINES_TYPE

_HINT: Final = 'send an object, such as {"do": "subscribe", "id": 1, "topic": "orders"}'
#: The names of members that Python keeps for itself.
_FIELDS: Final = {"from": "start"}
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Without `start`, `tail`, `last` and `cursor`, the subscription begins behind the head.

    `credit` is the number of records that may be sent; None without a bound.
    """

    id: int
    topic: str
    start: int | None = None
    tail: int | None = None
    last: str | None = None
    cursor: str | None = None
    tag: str | None = None
    exclude_node: Sequence[str] = ()
    gaps: bool = False
    credit: int | None = None

    def check(self) -> None:
        """Raise `InvalidOption` if the message names several places to begin at."""
        given = [name for name in ("start", "tail", "last", "cursor") if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidOption(given[1], "names a second place to begin at: send one of from, tail, last and cursor")


@dataclass(frozen=True, slots=True)
class Credit:
    id: int
    records: int


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    id: int


@dataclass(frozen=True, slots=True)
class Producer:
    """The batch of a producer, as the headers Producer-Id, Producer-Epoch and Producer-Seq name it."""

    id: str
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class Append:
    id: int
    topic: str
    records: Sequence[Any]
    tag: str | None = None
    node: str | None = None
    durability: str | None = None
    whole: bool = False
    key: str | None = None
    producer: Producer | None = None
    if_head: int | None = None
    if_incarnation: str | None = None

    @property
    def query(self) -> bytes:
        """Return the query of the POST that means the same (SAID-2)."""
        named = {
            "tag": self.tag,
            "node": self.node,
            "durability": self.durability,
            "whole": "1" if self.whole else None,
        }
        return urlencode({name: text for name, text in named.items() if text is not None}).encode()

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of that POST, but for the length of its body."""
        named: dict[str, Any] = {
            "content-type": JSON_LINES_TYPE,
            "idempotency-key": self.key,
            "seglog-if-head": self.if_head,
            "seglog-if-incarnation": self.if_incarnation,
        }
        if self.producer is not None:
            parts = {"id": self.producer.id, "epoch": self.producer.epoch, "seq": self.producer.seq}
            named |= {f"producer-{name}": value for name, value in parts.items()}
        return [(name.encode(), str(value).encode()) for name, value in named.items() if value is not None]


@dataclass(frozen=True, slots=True)
class Ack:
    id: int
    topic: str
    cursor: str
    seqs: Sequence[int]
    epoch: int


Message: TypeAlias = Subscribe | Credit | Unsubscribe | Append | Ack
_KINDS: Final[Mapping[str, type[Message]]] = {
    "subscribe": Subscribe,
    "credit": Credit,
    "unsubscribe": Unsubscribe,
    "append": Append,
    "ack": Ack,
}


def decode(text: str) -> tuple[int | None, Message | Exception]:
    """Return the id of a message, if it has one, and the message, or the error that says what is wrong with it.

    decode('{"do": "credit", "id": 1, "records": 500}')     # 1, Credit(1, 500)
    """
    number: int | None = None
    try:
        given = _object(text)
        number = given["id"] if type(given.get("id")) is int else None
        return number, _message(given)
    except Exception as error:
        return number, error


def body_of(append: Append) -> bytes:
    """Return the records as JSON lines."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in append.records)


def said(kind: str, number: int | None, **members: Any) -> str:
    """Return a message of the daemon. A member that is None is left out."""
    told = {name: value for name, value in members.items() if value is not None}
    return _JSON.encode({"is": kind, "id": number, **told})


def records(number: int, last: object, lines: bytes) -> str:
    """Return a message of records and gaps, whose JSON is `lines`, with commas between."""
    return f'{{"is":"records","id":{number},"last":"{last}","records":[{lines.decode()}]}}'


def appended(number: int, answer: bytes) -> str:
    """Return the answer to an append from the answer to the POST that means the same."""
    return f'{{"is":"appended","id":{number},{answer.decode()[1:]}'


def failed(number: int | None, problem: bytes) -> str:
    """Return the error of a message from its problem."""
    return f'{{"is":"error","id":{_JSON.encode(number)},"error":{problem.decode()}}}'


def ended(number: int, error: Exception) -> str:
    """Return the end of a subscription that failed."""
    return said("end", number, reason="error", error=json.loads(problem_of(error)))


def problem_of(error: Exception) -> bytes:
    return error_answer(error)[2]


def _object(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misuse(f"the message is not JSON: {error}", hint=_HINT) from error
    if not isinstance(given, dict):
        raise Misuse("the message is not a JSON object", hint=_HINT)
    return given


def _message(given: dict[str, Any]) -> Message:
    """Return the message. Raises `InvalidOption` and `InvalidArgument`."""
    name = given.pop("do", None)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InvalidOption("do", f"is none of {', '.join(_KINDS)}", hint=_HINT)
    if isinstance(given.get("producer"), dict):
        given["producer"] = _made(Producer, given["producer"])
    message: Message = _made(kind, given)
    if isinstance(message, Subscribe):
        message.check()
    return message


def _made(kind: Any, given: Mapping[str, Any]) -> Any:
    """Return a message of the members of an object. Raises `InvalidOption` and `InvalidArgument` (SAID-1)."""
    members = _members(kind)
    for name in given:
        if name not in members:
            raise InvalidOption.unknown(name[:40], members)
    found = {_FIELDS.get(name, name): taken(name, value, members[name][0]) for name, value in given.items()}
    for name, (_, is_needed) in members.items():
        if is_needed and name not in given:
            raise InvalidOption(name, "is missing", hint=_HINT)
    return kind(**found)


@cache
def _members(kind: Any) -> dict[str, tuple[Kind | None, bool]]:
    """Return the members of a message by name: the values that each takes, and whether the message needs it."""
    names, hints = {field: name for name, field in _FIELDS.items()}, get_type_hints(kind)
    return {
        names.get(each.name, each.name): (kind_of(hints[each.name]), each.default is MISSING) for each in fields(kind)
    }
