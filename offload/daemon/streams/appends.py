"""Appends to a stream: POST.

    the stream is closed        409 with Stream-Closed. A repetition of a batch, and a POST that only closes, is 204
    the body is empty           400, unless the POST closes
    another content type        409
    a producer's lower epoch    403 with Producer-Epoch
    a batch that is there       204, and nothing is appended
    a batch that skips          409 with Producer-Expected-Seq; 400 for a new epoch that does not begin with 0
    a Stream-Seq not above      409. It is one sequence for the whole stream, compared byte by byte
    otherwise                   204; with a producer and a body 200

POST-1  The records of one POST are in the log together, or none of them is: several values are a batch of the log.
POST-2  A POST that closes appends its records and the end with one write. So no crash separates the two.
"""

from __future__ import annotations

from dataclasses import replace

from offload.daemon.metrics import timed
from offload.daemon.quota import OverQuota, OverRate, frame_bytes
from offload.daemon.service import Service
from offload.daemon.streams.errors import StreamRefused, invalid_request
from offload.daemon.streams.live import WHOLE_BATCH, Live, Mark
from offload.daemon.streams.messages import base_type, is_json, messages
from offload.daemon.streams.requests import Append, Numbered
from offload.daemon.threads import SHORT_BYTES, in_threads
from seglog import BatchForgotten, BatchReused, ProducerFenced, ProducerGap
from seglog.errors import Conflict, Misuse
from seglog.values.producer import Producer, ProducerBatch


async def append(service: Service, live: Live, request: Append, body: bytes) -> tuple[int, dict[str, str]]:
    """Append the body. Return the status and the headers of the answer."""
    if request.closes or request.seq is not None:
        async with live.turns.alone():
            await live.prepare()
            return await _append_alone(service, live, request, body)
    async with live.turns.shared():
        await live.prepare()
        if live.mark.is_closed:
            return _answer_closed(live, request)
        return await _append(service, live, request, await _values(service, live, request, body), live.mark)


async def write(
    service: Service, live: Live, values: list[bytes], mark: Mark, producer: Numbered | None = None
) -> bool:
    """Append values and the mark. Return whether the topic had the batch already.

    No values and a mark that is closed: append the end. The caller has the turn.
    """
    is_end = not values
    records = values or [b""]
    if producer is not None:
        batch = ProducerBatch(producer_id(live, producer.id), producer.epoch, producer.number)
    elif len(records) > 1:
        batch = ProducerBatch(WHOLE_BATCH, 0, live.next_batch(), gaps=True)
    else:
        batch = None
    target = service.log.topic(live.entry.topic)
    try:
        with timed(service.metrics.append_s):
            is_known = (await target.append_once(records, tag=mark.tag, producer=batch)).duplicate
    except (Conflict, Misuse):  # a mistake of the client, which changed nothing
        raise
    except BaseException:
        live.doubt()
        raise
    if not is_known:
        service.metrics.appended_records.inc(len(values))
        service.metrics.appended_bytes.inc(sum(map(len, values)))
        if mark != live.mark:
            live.appended(mark, is_end=is_end)
    return is_known


async def records_of(service: Service, content_type: str, body: bytes) -> list[bytes]:
    """Return the records of a body. Raise `StreamRefused` and `Refused`."""
    arguments = content_type, body, service.settings.max_body_records
    # The decoding of a MiB of messages takes up to a second. In the event loop it would delay every other answer.
    is_short = len(body) <= SHORT_BYTES or not is_json(content_type)
    return messages(*arguments) if is_short else await in_threads(service.local, messages, *arguments)


def producer_id(live: Live, client_id: str) -> str:
    """Return the id in the log. A stream that was made again after a deletion begins with new producers."""
    return f"{live.entry.base}:{client_id}"


async def _append_alone(service: Service, live: Live, request: Append, body: bytes) -> tuple[int, dict[str, str]]:
    if live.mark.is_closed:
        is_again = request.closes and not body and request.producer is None
        return (204, _headers(live, None)) if is_again else _answer_closed(live, request)
    values = await _values(service, live, request, body)
    if request.producer is not None and _is_appended(live, request.producer):
        return 204, _headers(live, request.producer)
    if request.seq is not None and live.mark.seq is not None and request.seq <= live.mark.seq:
        raise _refused_append(live, f"Stream-Seq {request.seq!r} is not above {live.mark.seq!r}")
    mark = replace(live.mark, is_closed=request.closes, seq=live.mark.seq if request.seq is None else request.seq)
    return await _append(service, live, request, values, mark)


async def _append(
    service: Service, live: Live, request: Append, values: list[bytes], mark: Mark
) -> tuple[int, dict[str, str]]:
    producer, size_bytes = request.producer, frame_bytes(values or [b""], mark.tag)
    try:
        hold = await service.quota.take_append(size_bytes)
    except (OverQuota, OverRate):
        if producer is None or not _is_appended(live, producer):
            raise
        return 204, _headers(live, producer)
    with hold:
        if producer is None:
            is_known = await write(service, live, values, mark)
        else:
            is_known = await _write_numbered(service, live, values, mark, producer)
        if not is_known:
            hold.appended(size_bytes)
    is_new = producer is not None and not is_known and bool(values)
    return (200 if is_new else 204), _headers(live, producer)


async def _write_numbered(service: Service, live: Live, values: list[bytes], mark: Mark, producer: Numbered) -> bool:
    """Append a batch of a producer, as `write` does. Raise an error of streams for a batch that does not follow."""
    try:
        return await write(service, live, values, mark, producer)
    except ProducerFenced as fenced:
        raise _fenced(fenced.current) from None
    except ProducerGap as gap:
        _is_appended(live, producer)
        text = f"the next batch of this producer is {gap.expected}, not {producer.number}"
        headers = {"producer-expected-seq": str(gap.expected), "producer-received-seq": str(producer.number)}
        raise StreamRefused(409, text, headers=headers) from None
    except BatchForgotten:
        return True
    except BatchReused:  # the batch had another number of messages when it was appended
        if not _is_appended(live, producer):
            raise
        return True


async def _values(service: Service, live: Live, request: Append, body: bytes) -> list[bytes]:
    """Return the records of the body. Raise an error for a body that the stream does not take."""
    if not body:
        if request.closes:
            return []
        raise invalid_request("body", "it is empty, and the request does not close the stream")
    if request.content_type is None:
        raise invalid_request("Content-Type", "a body needs it")
    kind = live.entry.content_type
    if base_type(request.content_type) != base_type(kind):
        raise _refused_append(live, f"its content type is {kind}, not {request.content_type}")
    values = await records_of(service, kind, body)
    if not values:
        raise invalid_request("body", "it is an empty array")
    return values


def _answer_closed(live: Live, request: Append) -> tuple[int, dict[str, str]]:
    if request.producer is not None and _is_appended(live, request.producer):
        return 204, _headers(live, request.producer)
    headers = {"stream-closed": "true", "stream-next-offset": live.tail_offset}
    raise StreamRefused(409, f"the stream {live.entry.path} is closed", headers=headers)


def _refused_append(live: Live, reason: str) -> StreamRefused:
    return StreamRefused(409, f"the append to {live.entry.path} is refused: {reason}")


def _fenced(epoch: int) -> StreamRefused:
    headers = {"producer-epoch": str(epoch)}
    return StreamRefused(403, f"another producer of this id has begun epoch {epoch}", headers=headers)


def _known(live: Live, producer: Numbered) -> Producer | None:
    return live.topic.inner.known_producer(producer_id(live, producer.id))


def _is_appended(live: Live, producer: Numbered) -> bool:
    """Return whether the batch is there. Raise an error for an epoch that is lower, or that does not begin with 0."""
    newest = _known(live, producer)
    if newest is None or producer.epoch > newest.epoch:
        if newest is not None and producer.number:
            raise invalid_request("Producer-Seq", "a new epoch begins with 0")
        return False
    if producer.epoch < newest.epoch:
        raise _fenced(newest.epoch)
    return producer.number <= newest.number


def _headers(live: Live, producer: Numbered | None) -> dict[str, str]:
    headers = {"stream-next-offset": live.tail_offset}
    if live.mark.is_closed:
        headers["stream-closed"] = "true"
    if producer is not None:
        newest = _known(live, producer)
        headers["producer-epoch"] = str(producer.epoch)
        headers["producer-seq"] = str(producer.number if newest is None else newest.number)
    return headers
