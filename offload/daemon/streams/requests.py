"""Requests about a stream, as values: its path and the name of its topic, its offsets, and what a PUT, a POST and a GET
ask for. No I/O.

A function for a header or a query raises `StreamRefused` for what the protocol forbids. An encoded body is a plain
`Refused`.

    in the path                 in the name
    A-Z a-z 0-9 -               itself, but `-` as `_2d` at the beginning
    /                           `.`, but `_2f` at the beginning
    _                           `__`
    any other byte of UTF-8     `_` and two hexadecimal digits

An offset is the epoch of the topic and the seq of the last record before the position, each with 16 digits. So offsets
of one stream sort as texts. The beginning is `0000000000000000_0000000000000000`, and a reader may say `-1` for it.

PATHNAME-1  Two paths never have one name. A name that begins with `_s` is no stream's: the daemon uses such names.
PATHNAME-2  A name has at most 128 characters. A path whose name is longer is refused, never cut.
POSITION-1  An offset of an earlier epoch stays valid: the epoch also rises at a takeover, which changes no record. An
    offset of a later epoch, above the head, or of a record that a truncation took since the start, is refused.
CURSOR-1  A cursor is the number of the current interval of 20 s. A client that has this one already, or a later one,
    gets a higher one. So a cache never answers with the same empty answer forever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from offload.daemon.streams.errors import invalid_request
from offload.errors import Refused
from seglog.base.dataclasses import dataclass

_CONTENT_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*(?:;[ -~]*)?", re.ASCII)
_WHOLE = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9:]{8}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})", re.ASCII)
_NUMBER_MAX = 2**53 - 1
_SEQ_MAX_BYTES = 1024
_DEFAULT_TYPE = "application/octet-stream"
ROOT = "/streams/"
_NAME_MAX = 128
_RESERVED = "__ds"
_ITSELF = re.compile(rb"[A-Za-z0-9-]")
BEGINNING: Final = "-1"
NOW: Final = "now"

_OFFSET = re.compile(r"([0-9]{16})_([0-9]{16})", re.ASCII)
_CURSOR_INTERVAL_MS = 20_000
_CURSOR_SINCE_MS = 1_728_432_000_000  # 2024-10-09T00:00:00Z, as the protocol says
_CURSOR_JITTER_MAX = 180  # intervals: an hour


@dataclass(frozen=True, slots=True)
class Fork:
    """The source of a fork. `offset` is the text that the client gave; empty: the tail. `skip` goes beyond it."""

    source: str
    offset: str = ""
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    """A PUT. Without a `content_type`, a stream has the default one, and a fork that of its source."""

    content_type: str | None
    ttl_s: int | None
    expires_at: str | None
    is_closed: bool
    fork: Fork | None

    @property
    def type_or_default(self) -> str:
        return self.content_type or _DEFAULT_TYPE


@dataclass(frozen=True, slots=True)
class Numbered:
    """The identity of an append: producer, epoch and number."""

    id: str
    epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class Append:
    """A POST."""

    content_type: str | None
    seq: str | None
    closes: bool
    producer: Numbered | None


class Wait(Enum):
    """How a reader at the tail waits for more."""

    LONG_POLL = "long-poll"
    SSE = "sse"


@dataclass(frozen=True, slots=True)
class Read:
    """A GET. `offset` is `-1`, `now` or an offset; `live` says how the reader waits."""

    offset: str
    live: Wait | None
    cursor: str | None
    etags: frozenset[str]


def create_of(headers: Mapping[str, str]) -> Create:
    _check_plain(headers)
    ttl, expires_at = headers.get("stream-ttl"), headers.get("stream-expires-at")
    if ttl is not None and expires_at is not None:
        raise invalid_request("Stream-TTL", "give it or Stream-Expires-At, not both")
    ttl_s = None if ttl is None else _whole("Stream-TTL", ttl)
    if expires_at is not None:
        expires_ms(expires_at)
    return Create(_type_of(headers), ttl_s, expires_at, _closes(headers), _fork_of(headers))


def append_of(headers: Mapping[str, str]) -> Append:
    _check_plain(headers)
    seq = headers.get("stream-seq")
    if seq is not None and len(seq) > _SEQ_MAX_BYTES:
        raise invalid_request("Stream-Seq", f"it has at most {_SEQ_MAX_BYTES} bytes")
    return Append(_type_of(headers), seq, _closes(headers), _producer_of(headers))


def _check_plain(headers: Mapping[str, str]) -> None:
    """Raise `Refused` (415) for a body with a `Content-Encoding`: a stream has the bytes as they come."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        text = f"a stream takes no body with the Content-Encoding {encoding[:100]!r}"
        raise Refused(415, "stream", text, hint="send the body as it is")


def read_of(query: Sequence[tuple[str, str]], headers: Mapping[str, str]) -> Read:
    texts = {name: [text for parameter, text in query if parameter == name] for name in ("offset", "live", "cursor")}
    if len(texts["offset"]) > 1:
        raise invalid_request("offset", "give it once")
    offset, live = next(iter(texts["offset"]), None), next(iter(texts["live"]), None)
    if offset is not None and offset not in {BEGINNING, NOW} and parsed_offset(offset) is None:
        raise invalid_request("offset", f"{offset[:64]!r} is none")
    if live is not None and live not in {wait_.value for wait_ in Wait}:
        raise invalid_request("live", "it is long-poll or sse")
    if live is not None and offset is None:
        raise invalid_request("offset", "a live read needs it")
    etags = headers.get("if-none-match", "")
    etags_known = frozenset(etag.strip().removeprefix("W/") for etag in etags.split(",") if etag.strip())
    wait = None if live is None else Wait(live)
    return Read(BEGINNING if offset is None else offset, wait, next(iter(texts["cursor"]), None), etags_known)


def expires_ms(text: str) -> int:
    """Return the time of a `Stream-Expires-At`, in ms since the epoch."""
    refusal = invalid_request("Stream-Expires-At", f"{text[:64]!r} is no time as RFC 3339 has it")
    if not _TIME.fullmatch(text):
        raise refusal
    try:
        return int(datetime.fromisoformat(text.upper()).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise refusal from None


def _type_of(headers: Mapping[str, str]) -> str | None:
    text = headers.get("content-type")
    if not text:
        return None
    if len(text) > 255 or not _CONTENT_TYPE.fullmatch(text):
        raise invalid_request("Content-Type", f"{text[:64]!r} is none")
    return text


def _closes(headers: Mapping[str, str]) -> bool:
    return headers.get("stream-closed", "").lower() == "true"


def _fork_of(headers: Mapping[str, str]) -> Fork | None:
    source, offset = headers.get("stream-forked-from"), headers.get("stream-fork-offset")
    skip = headers.get("stream-fork-sub-offset")
    if source is None:
        if offset is not None or skip is not None:
            raise invalid_request("Stream-Forked-From", "a fork offset needs it")
        return None
    if offset is not None and offset not in {BEGINNING, NOW} and parsed_offset(offset) is None:
        raise invalid_request("Stream-Fork-Offset", f"{offset[:64]!r} is no offset")
    skipped = 0 if skip is None else _whole("Stream-Fork-Sub-Offset", skip)
    if skipped and offset is None:
        raise invalid_request("Stream-Fork-Sub-Offset", "it needs Stream-Fork-Offset")
    return Fork(source_path(source), offset or "", skipped)


def _producer_of(headers: Mapping[str, str]) -> Numbered | None:
    names = ("producer-id", "producer-epoch", "producer-seq")
    texts = [headers[name] for name in names if name in headers]
    if not texts:
        return None
    if len(texts) < len(names):
        raise invalid_request("Producer-Id", "give Producer-Id, Producer-Epoch and Producer-Seq, or none of them")
    if not texts[0]:
        raise invalid_request("Producer-Id", "it is empty")
    return Numbered(texts[0], _whole("Producer-Epoch", texts[1]), _whole("Producer-Seq", texts[2]))


def _whole(name: str, text: str) -> int:
    if not _WHOLE.fullmatch(text) or int(text) > _NUMBER_MAX:
        raise invalid_request(name, f"{text[:64]!r} is no whole number from 0 to {_NUMBER_MAX}")
    return int(text)


def path_of(raw: bytes) -> str:
    """Return the path of a stream from the raw path of a URL behind `/streams/`. `%2f` is a slash.

    Raise `StreamRefused` for an empty path, bytes that are not UTF-8, and a path that the protocol reserves.
    """
    try:
        path = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise invalid_request("path", "it is not UTF-8") from None
    if not path:
        raise invalid_request("path", "it is empty")
    if path.partition("/")[0] == _RESERVED:
        reason = f"the protocol reserves {_RESERVED} for subscriptions, which this server does not have"
        raise invalid_request("path", reason)
    return path


def source_path(header: str) -> str:
    """Return the path of the stream that `Stream-Forked-From` names: a path of a URL, with `/streams/` or without."""
    raw = header.encode("latin-1", "replace").partition(b"?")[0]
    return path_of(raw.removeprefix(ROOT.encode()) if raw.startswith(ROOT.encode()) else raw.removeprefix(b"/"))


def topic_name(path: str) -> str:
    """Return the name of the stream's topic. Raise `StreamRefused` if it is too long (PATHNAME-2)."""
    data = path.encode()
    parts = [_escaped(data[at : at + 1], is_first=at == 0) for at in range(len(data))]
    name = "".join(parts)
    if len(name) > _NAME_MAX:
        text = f"the name of its topic would have {len(name)} characters, and {_NAME_MAX} is the maximum"
        raise invalid_request("path", text)
    return name


def location(path: str) -> str:
    """Return the path of the URL of a stream."""
    return ROOT + quote(path)


def _escaped(byte: bytes, *, is_first: bool) -> str:
    if byte == b"_":
        return "__"
    if byte == b"/" and not is_first:
        return "."
    if _ITSELF.match(byte) and not (is_first and byte == b"-"):
        return byte.decode()
    return f"_{byte[0]:02x}"


def offset_text(epoch: int, seq: int) -> str:
    return f"{epoch:016d}_{seq:016d}"


def parsed_offset(text: str) -> tuple[int, int] | None:
    """Return the epoch and the seq of an offset, or None for any other text."""
    match = _OFFSET.fullmatch(text)
    return None if match is None else (int(match[1]), int(match[2]))


def cursor(now_ms: int, sent: str | None, chance: float) -> str:
    """Return the cursor of an answer. `sent` is the client's, and `chance` a number from 0 to below 1 (CURSOR-1)."""
    current = max(0, now_ms - _CURSOR_SINCE_MS) // _CURSOR_INTERVAL_MS
    is_number = sent is not None and sent.isascii() and sent.isdigit() and len(sent) <= 15
    if sent is None or not is_number or int(sent) < current:
        return str(current)
    return str(int(sent) + 1 + int(chance * _CURSOR_JITTER_MAX))
