"""The requests of the client, as values. No I/O.

A request is repeatable if a repetition changes nothing that the first one has changed: a read, or an append with a
producer or a key. The client repeats only these after a lost answer (CLIENT-1).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Unpack, cast
from urllib.parse import quote, urlencode

from seglog.base.arguments import checked
from seglog.client.bodies import JSON_LINES_TYPE, VALUES_TYPE, encode_values
from seglog.client.connections import Request
from seglog.errors import InvalidArgument
from seglog.values.config import check_durability
from seglog.values.protocols import AppendArguments

if TYPE_CHECKING:
    from seglog.values.producer import ProducerBatch

INCARNATION: Final = "seglog-incarnation"
EVENTS_TYPE: Final = "text/event-stream"
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
PAGE_RECORDS: Final = 8192
PAGE_BYTES: Final = 512 * 1024
_IF_INCARNATION: Final = "seglog-if-incarnation"


class AppendLabels(NamedTuple):
    """The labels of all records of one append, and how safe they have to be before the answer."""

    tag: str | None = None
    node: str | None = None
    unterminated: bool = False
    durability: str | None = None

    @property
    def query(self) -> dict[str, str]:
        texts = {
            "tag": self.tag,
            "node": self.node,
            "unterminated": "1" if self.unterminated else None,
            "durability": self.durability,
        }
        return {name: text for name, text in texts.items() if text is not None}


class Asked(NamedTuple):
    """The records that a read asks for, from seq `start` to `end`, both inclusive."""

    start: int | None = None
    end: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    tag: str | None = None
    limit: int | None = None
    gaps: bool = False
    at: str | None = None

    @property
    def query(self) -> dict[str, str]:
        parameters = {
            "from": self.start,
            "to": self.end,
            "since_ms": self.since_ms,
            "until_ms": self.until_ms,
            "tag": self.tag,
            "limit": self.limit,
            "gaps": 1 if self.gaps else None,
            "at": self.at,
        }
        return {name: str(value) for name, value in parameters.items() if value is not None}


def append_request(
    topic: str,
    values: Sequence[bytes],
    labels: AppendLabels,
    *,
    producer: ProducerBatch | None = None,
    key: str | None = None,
    if_head: int | None = None,
    incarnation: str | None = None,
    if_incarnation: str | None = None,
    chunks: Iterable[bytes] | AsyncIterable[bytes] | None = None,
) -> Request:
    """Return an append of all values or none. With a producer or a key, it is for that incarnation alone.

    With `chunks`, it is an append of one record that they make.
    """
    headers = {"Content-Type": VALUES_TYPE if chunks is None else "application/octet-stream"}
    if producer is not None:
        headers |= {
            "Producer-Id": header_text("id", producer.id),
            "Producer-Epoch": str(producer.epoch),
            "Producer-Seq": str(producer.number),
        }
    if key is not None:
        headers["Idempotency-Key"] = header_text("key", key)
    if if_head is not None:
        headers["seglog-if-head"] = str(if_head)
    is_repeatable = producer is not None or key is not None
    if if_incarnation is not None:
        incarnation = header_text("if_incarnation", if_incarnation)
    if incarnation is not None and (is_repeatable or if_incarnation is not None):
        headers[_IF_INCARNATION] = incarnation
    return Request(
        "POST" if chunks is None else "PUT",
        _with_query(f"{_place(topic)}/records", labels.query | ({"whole": "1"} if chunks is None else {})),
        headers,
        encode_values(values) if chunks is None else b"",
        is_repeatable=is_repeatable,
        is_append=True,
        topic=topic,
        producer=producer,
        incarnation=incarnation,
        chunks=chunks,
    )


def append_of(
    topic: str,
    values: Sequence[bytes],
    incarnation: str | None,
    options: AppendArguments,
    chunks: Iterable[bytes] | AsyncIterable[bytes] | None = None,
) -> Request:
    """Return the append of a caller, who knows that incarnation of the topic."""
    producer, key = options.get("producer"), options.get("key")
    if producer is not None and key is not None:
        raise InvalidArgument("key", key, "None beside a producer")
    durability = options.get("durability")
    if durability is not None:
        check_durability(durability)
    labels = AppendLabels(options.get("tag"), options.get("node"), options.get("unterminated", False), durability)
    return append_request(
        topic,
        values,
        labels,
        producer=producer,
        key=key,
        if_head=options.get("if_head"),
        incarnation=incarnation,
        if_incarnation=options.get("if_incarnation"),
        chunks=chunks,
    )


@checked
def append_stream(topic: str, chunks: object, incarnation: str | None, **options: Unpack[AppendArguments]) -> Request:
    """Return the append of one record in chunks. Nothing here looks at them: they may be a generator."""
    return append_of(topic, (), incarnation, options, cast("Iterable[bytes]", chunks))


def read_request(topic: str, selection: Asked) -> Request:
    headers = {"Accept": JSON_LINES_TYPE}
    return Request("GET", _with_query(f"{_place(topic)}/records", selection.query), headers, topic=topic)


def page_request(topic: str, selection: Asked) -> Request:
    """Return a request of the next records in Arrow: few enough that the daemon makes all of the answer at once."""
    query = {**selection.query, "limit": str(PAGE_RECORDS), "max_bytes": str(PAGE_BYTES)}
    return Request("GET", _with_query(f"{_place(topic)}/records", query), {"Accept": ARROW_TYPE}, topic=topic)


def follow_request(topic: str, selection: Asked, last_event: str | None) -> Request:
    """Return a request of the records to come as events. `last_event` is the id of the last event that came."""
    query = {**selection.query, "follow": "1"}
    headers = {"Accept": EVENTS_TYPE}
    if last_event is not None:
        query.pop("from", None)
        headers["Last-Event-ID"] = last_event
    return Request("GET", _with_query(f"{_place(topic)}/records", query), headers, topic=topic)


def events_request(topics: Sequence[str], query: Iterable[tuple[str, str]], position: str | None) -> Request:
    """Return a request of the records to come of several topics. `position` is the id of the last event that came."""
    headers = {"Accept": EVENTS_TYPE}
    if position is not None:
        headers["Last-Event-ID"] = position
    named = [("topic", each) for each in topics]
    return Request("GET", f"/events?{urlencode([*named, *query])}", headers, topic=topics[0].partition(":")[0])


def ack_request(topic: str, cursor: str, epoch: int, seqs: Sequence[int]) -> Request:
    """Return an ack of records. A repetition acks nothing more."""
    body = json.dumps({"seqs": list(seqs), "epoch": epoch}).encode()
    path = f"{_place(topic)}/cursors/{quote(cursor, safe='')}/acks"
    return Request("POST", path, {"Content-Type": "application/json"}, body, topic=topic)


def bounds_request(topic: str) -> Request:
    return Request("HEAD", f"{_place(topic)}/records", topic=topic)


def truncate_request(topic: str, seq: int) -> Request:
    """Return a truncation. Records may follow the first one, so a repetition could remove them."""
    body = json.dumps({"seq": seq}).encode()
    headers = {"Content-Type": "application/json"}
    return Request("POST", f"{_place(topic)}/rpc/truncate", headers, body, is_repeatable=False, topic=topic)


def topics_request() -> Request:
    return Request("GET", "/topics")


def header_text(name: str, text: str) -> str:
    """Return a text as a header carries it: each byte of its UTF-8 as a character. Raise `InvalidArgument`."""
    from seglog.values.producer import ID_MAX_BYTES

    is_plain = text == text.strip() and not any(char < " " or char == "\x7f" for char in text)
    if not is_plain or not 1 <= len(text.encode()) <= ID_MAX_BYTES:
        accepted = f"1 to {ID_MAX_BYTES} bytes in UTF-8, without control characters, and without spaces around them"
        raise InvalidArgument(name, text, accepted)
    return text.encode().decode("latin-1")


def _place(topic: str) -> str:
    return f"/topics/{quote(topic, safe='')}"


def _with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
