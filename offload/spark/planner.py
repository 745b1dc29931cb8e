"""The planner process: `python -m offload.spark.planner`, a child of the Spark driver.

It answers the calls of `offload.spark.messages`, one after the other.

PLANNER-1  The process ends when its standard input ends. So it does not outlive the driver.
PLANNER-2  Standard output carries messages only. Whatever else is printed goes to standard error.
PLANNER-3  Every call gets an answer. An error is a message, and the process reads the next call.
    The requests to the store have time limits, so no call waits forever.
PLANNER-4  An error that is not seglog's own is named in the message without its text, which may hold secrets. Standard
    error has its traceback.
PLANNER-5  An interrupt from the terminal is for the driver. The process ignores it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, BinaryIO, TypeVar

from offload.format.labels import software_version
from offload.spark.aggregates import GROUPING_COLUMNS, Aggregate
from offload.spark.change_feed_stream import stream_of
from offload.spark.columns import ALL_COLUMNS, Column, columns_of
from offload.spark.listings import LISTINGS, listed
from offload.spark.messages import (
    PROTOCOL,
    InvalidMessage,
    decode_filter,
    decode_message,
    encode_message,
    encode_task,
    read_message,
)
from offload.spark.offsets import decode_offset, offset_text
from offload.spark.options import ReadOptions, parse_options
from offload.spark.pin import decode_pin, encode_pin
from offload.spark.query_plan import Plan, Query, Remote
from offload.spark.stream import Stream
from offload.spark.stream_options import StreamOptions, parse_any_options, parse_stream_options
from offload.wiring import credential_finder
from seglog.errors import SeglogError

_REMOTES = 4
_STREAMS = 64
_Json = dict[str, Any]
_T = TypeVar("_T")


class Planner:
    """The calls of a driver. It keeps the remotes of the last calls open. One thread at a time uses it.

    `rows_in_message` bounds the messages of a listing, whose rows have some hundred bytes each.
    """

    def __init__(self, rows_in_message: int = 5000) -> None:
        self._rows_in_message = rows_in_message
        self._remotes: OrderedDict[tuple[str, str], Remote] = OrderedDict()
        self._streams: OrderedDict[tuple[tuple[str, str], ...], Stream] = OrderedDict()
        self._find_credentials: Callable[[], Any] | None = None

    def close(self) -> None:
        for remote in self._remotes.values():
            remote.close()

    def answers(self, call: Mapping[str, Any]) -> Iterator[_Json]:
        """Yield the answers of a call, without its id. Raises the errors of the call."""
        name, options = _field(call, "call", str), call.get("options")
        answer = {
            "pin": self._pin,
            "plan": self._plan,
            "aggregate": self._aggregate,
            "groups": self._groups,
            "stream_latest": self._stream_latest,
            "stream_plan": self._stream_plan,
            "credentials": self._credentials,
            "listing": self._listing,
            "load": self._load,
        }.get(name)
        if answer is None:
            raise InvalidMessage(f"there is no call {name!r}")
        if not isinstance(options, dict):
            raise InvalidMessage(f"its options is {options!r}")
        yield from answer(call, options)

    def _pin(self, _: Mapping[str, Any], texts: Mapping[str, str]) -> Iterator[_Json]:
        options = parse_any_options(texts)
        columns = _described(columns_of(options))
        yield {"pin": encode_pin(self._remote(options).pin(options)), "columns": columns}

    def _plan(self, call: Mapping[str, Any], texts: Mapping[str, str]) -> Iterator[_Json]:
        options, query = parse_options(texts), _query(call)
        yield from _planned(self._remote(options).plan(options, decode_pin(call.get("pin")), query))

    def _aggregate(self, call: Mapping[str, Any], texts: Mapping[str, str]) -> Iterator[_Json]:
        options = parse_options(texts)
        figures = [_aggregate(item) for item in _field(call, "aggregates", list)]
        pin = decode_pin(call.get("pin"))
        yield {"values": self._remote(options).aggregate(options, pin, _filters(call), figures)}

    def _groups(self, call: Mapping[str, Any], texts: Mapping[str, str]) -> Iterator[_Json]:
        options, by = parse_options(texts), _field(call, "by", list)
        if not by or any(column not in GROUPING_COLUMNS for column in by):
            raise InvalidMessage(f"it groups by {by!r}")
        figures = [_aggregate(item) for item in _field(call, "aggregates", list)]
        pin = decode_pin(call.get("pin"))
        yield {"rows": self._remote(options).groups(options, pin, _filters(call), by, figures)}

    def _stream_latest(self, call: Mapping[str, Any], texts: Mapping[str, str]) -> Iterator[_Json]:
        options = parse_stream_options(texts)
        start, target = decode_offset(_field(call, "start", str)), call.get("target")
        pin, limited = None if target is None else decode_pin(target), _field(call, "limited", bool)
        end = self._stream(texts, options).latest(self._remote(options.read), start, pin, limited=limited)
        yield {"offset": offset_text(end)}

    def _stream_plan(self, call: Mapping[str, Any], texts: Mapping[str, str]) -> Iterator[_Json]:
        options, query = parse_stream_options(texts), _query(call)
        start, end = (decode_offset(_field(call, name, str)) for name in ("start", "end"))
        yield from _planned(self._stream(texts, options).plan(self._remote(options.read), start, end, query))

    def _credentials(self, _call: Mapping[str, Any], _options: Mapping[str, str]) -> Iterator[_Json]:
        self._find_credentials = self._find_credentials or credential_finder()
        yield {"credentials": asdict(self._find_credentials())}

    def _listing(self, call: Mapping[str, Any], texts: Mapping[str, str]) -> Iterator[_Json]:
        options, name = parse_options(texts), _field(call, "of", str)
        if name not in LISTINGS:
            raise InvalidMessage(f"there is no listing {name!r}")
        columns, rows = listed(name, options, self._remote(options).volumes)
        starts = range(0, len(rows), self._rows_in_message)
        yield {"columns": _described(columns), "parts": len(starts)}
        yield from ({"rows": rows[start : start + self._rows_in_message]} for start in starts)

    def _load(self, call: Mapping[str, Any], texts: Mapping[str, str]) -> Iterator[_Json]:
        from catalog.format.commit import Codec  # imported late, because only writes need them
        from offload.load import check_load, most_value_bytes
        from offload.spark.row_frames import check_columns
        from offload.spark.write_options import parse_write_options
        from seglog.files.clock import SystemClock

        columns = [(str(name), str(kind)) for name, kind in _field(call, "columns", list)]
        by_topic = "topic" not in texts and "topic" in (name.lower() for name, _ in columns)
        url, request = parse_write_options({**texts, "topic": "each"} if by_topic else texts)
        check_columns(columns)
        volumes = self._opened(url, request.kms_key_id).volumes
        most = most_value_bytes(Codec.ZSTD) if by_topic else check_load(volumes, request, now_ms=SystemClock().now_ms())
        yield {"done": True} if most is None else {"most_value_bytes": most}

    def _stream(self, texts: Mapping[str, str], options: StreamOptions) -> Stream:
        """Return the stream of these options. Queries with the same options share it."""
        key = tuple(sorted(texts.items()))
        stream = self._streams.pop(key, None) or stream_of(options)
        self._streams[key] = stream
        if len(self._streams) > _STREAMS:
            self._streams.popitem(last=False)
        return stream

    def _remote(self, options: ReadOptions) -> Remote:
        return self._opened(options.url, options.kms_key_id)

    def _opened(self, url: str, kms_key_id: str) -> Remote:
        key = url, kms_key_id
        remote = self._remotes.pop(key, None) or Remote.open(*key)
        self._remotes[key] = remote
        if len(self._remotes) > _REMOTES:
            self._remotes.popitem(last=False)[1].close()
        return remote


def serve(calls: BinaryIO, answers: BinaryIO) -> int:
    """Answer the calls until they end. Return the exit code: 0, or 1 if a message does not fit the protocol."""

    def send(message: Mapping[str, Any]) -> None:
        answers.write(encode_message(message))
        answers.flush()

    planner = Planner()
    try:
        python = "{}.{}".format(*sys.version_info)
        send({"hello": {"protocol": PROTOCOL, "python": python, "seglog": software_version()}})
        _check_hello(read_message(calls))
        while (body := read_message(calls)) is not None:
            _answer(planner, body, send)
    except InvalidMessage as error:
        send({"id": None, "error": _error(error)})
        return 1
    finally:
        planner.close()
    return 0


def main() -> int:
    """Serve standard input and output. A driver that is gone ends the process without a word."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="seglog planner: %(message)s")
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        return serve(sys.stdin.buffer, answers)
    except BrokenPipeError:
        return 0


def _check_hello(body: bytes | None) -> None:
    """Raise `InvalidMessage` if the driver's first message is not a hello of this protocol."""
    if body is None:
        return
    hello = decode_message(body).get("hello")
    protocol = hello.get("protocol") if isinstance(hello, dict) else None
    if protocol != PROTOCOL:
        raise InvalidMessage(
            f"the driver speaks protocol {protocol!r}, this planner {PROTOCOL}",
            hint="use the same seglog for the jar and for Python on the driver",
        )


def _answer(planner: Planner, body: bytes, send: Callable[[Mapping[str, Any]], None]) -> None:
    number: object = None
    try:
        call = decode_message(body)
        number = call.get("id")
        for answer in planner.answers(call):
            send({"id": number, **answer})
    except BrokenPipeError:
        raise
    except Exception as error:  # PLANNER-3: every call gets an answer
        send({"id": number, "error": _error(error)})


def _error(error: Exception) -> _Json:
    if isinstance(error, SeglogError):
        return {"type": type(error).__name__, "message": str(error), "hint": error.hint}
    traceback.print_exception(error)
    return {
        "type": type(error).__name__,
        "message": "the planner failed",
        "hint": "its standard error, which the driver's log has, says why",
    }


def _field(call: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    value = call.get(name)
    if not isinstance(value, kind):
        raise InvalidMessage(f"its {name} is {value!r}")
    return value


def _number(call: Mapping[str, Any], name: str) -> int | None:
    number = call.get(name)
    if number is None:
        return None
    if type(number) is not int or number < 1:
        raise InvalidMessage(f"its {name} is {number!r}")
    return number


def _query(call: Mapping[str, Any]) -> Query:
    columns = frozenset(_field(call, "columns", list))
    if unknown := columns - {column.name for column in ALL_COLUMNS}:
        raise InvalidMessage(f"there is no column {min(unknown)!r}")
    return Query(columns, _filters(call), _number(call, "limit"), _number(call, "parallelism"))


def _planned(plan: Plan) -> Iterator[_Json]:
    """Yield the answer to a plan: a summary, then the tasks."""
    yield {
        "plan": {
            "tasks": len(plan.tasks),
            "rows": plan.rows,
            "exact": plan.is_exact,
            "bytes": plan.raw_bytes,
            "segments": plan.segments,
        }
    }
    for task in plan.tasks:
        yield {"task": encode_task(task)}


def _described(columns: Iterable[Column]) -> list[_Json]:
    return [{"name": column.name, "type": column.type} for column in columns]


def _filters(call: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(decode_filter(message) for message in _field(call, "filters", list))


def _aggregate(message: Any) -> Aggregate:
    if message == {"op": "count"}:
        return Aggregate("count")
    if isinstance(message, dict) and message.get("op") in {"min", "max"} and message.get("column") == "seq":
        return Aggregate(message["op"])
    raise InvalidMessage(f"{message!r} is no aggregate")


if __name__ == "__main__":
    sys.exit(main())
