"""The bodies of a stream: as records, as the answer to a read, and as server-sent events.

    content type       a record is                     a read gives              an event of data gives
    application/json   a message: the body, or each    the messages in an array  the same
                       element of an array
    text/*             the body of a request           the records in a row      the same
    any other          the body of a request           the records in a row      the same in base64

MESSAGE-1  A message keeps its bytes, also its numbers and its spaces between tokens.

No I/O.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from typing import NoReturn

from offload.daemon.streams.errors import invalid_request
from offload.errors import too_many_records

_SPACE = re.compile(r"[ \t\n\r]*")
_LINE_END = re.compile(rb"\r\n|\n|\r")


def base_type(content_type: str) -> str:
    """Return the content type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str) -> bool:
    return base_type(content_type) == "application/json"


def is_binary(content_type: str) -> bool:
    """Return whether an event carries the bytes in base64."""
    return not (is_json(content_type) or base_type(content_type).startswith("text/"))


def messages(content_type: str, body: bytes, most: int) -> list[bytes]:
    """Return the records of a body.

    In JSON mode, raise `StreamRefused` for a body that is no JSON, and `Refused` for more than `most`.
    """
    if not body:
        return []
    if not is_json(content_type):
        return [body]
    try:
        return [message.encode() for message in _elements(body.decode(), most)]
    except RecursionError:
        raise invalid_request("body", "its JSON is nested too deep") from None
    except ValueError as error:
        raise invalid_request("body", f"it is no JSON: {str(error)[:200]}") from None


def joined(content_type: str, values: Sequence[bytes]) -> bytes:
    """Return the body of a read."""
    return b"[" + b",".join(values) + b"]" if is_json(content_type) else b"".join(values)


def data_event(content_type: str, values: Sequence[bytes]) -> bytes:
    """Return the event of data. A line end in a value begins a new line of the event, so no value ends the event."""
    body = joined(content_type, values)
    if is_binary(content_type):
        body = base64.b64encode(body)
    return b"event: data\n" + b"".join(_line(line) for line in _LINE_END.split(body)) + b"\n"


def control_event(fields: dict[str, str | bool]) -> bytes:
    return b"event: control\ndata:" + json.dumps(fields).encode() + b"\n\n"


def _line(text: bytes) -> bytes:
    """Return a line of an event. A client drops one space behind the colon, so a line that begins with one gets one."""
    return (b"data: " if text.startswith(b" ") else b"data:") + text + b"\n"


def _elements(text: str, most: int) -> Iterator[str]:
    """Yield the text of each element of an array, or of the one value that is no array."""
    begin = _after_space(text, 0)
    if text[begin : begin + 1] != "[":
        end = _value_end(text, begin)
        _check_end(text, end)
        yield text[begin:end]
        return
    at = _after_space(text, begin + 1)
    if text[at : at + 1] == "]":
        _check_end(text, at + 1)
        return
    elements: list[str] = []
    while True:
        if len(elements) == most:
            raise too_many_records(most)
        end = _value_end(text, at)
        elements.append(text[at:end])
        at = _after_space(text, end)
        if text[at : at + 1] == "]":
            _check_end(text, at + 1)
            yield from elements
            return
        if text[at : at + 1] != ",":
            raise ValueError(f"there is no comma at character {at}")
        at = _after_space(text, at + 1)


def _value_end(text: str, at: int) -> int:
    return _DECODER.raw_decode(text, at)[1]


def _check_end(text: str, at: int) -> None:
    if _after_space(text, at) != len(text):
        raise ValueError(f"there is more behind the value, at character {at}")


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None  # noqa: S101 - it matches the empty text
    return match.end()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=lambda _: 0.0, parse_int=lambda _: 0)
