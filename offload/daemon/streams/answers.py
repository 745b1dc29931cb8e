"""The headers of answers about a stream, and the answers of reads."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from starlette.responses import Response

from offload.daemon.problems import answer_of
from offload.daemon.streams.errors import StreamRefused
from offload.daemon.streams.live import Live
from offload.daemon.streams.messages import joined
from offload.daemon.streams.reads import Piece

__all__ = ["ALWAYS", "described", "error_response", "etag", "piece_headers", "piece_response"]

#: The headers of each answer: browsers neither guess the type nor let other sites embed it without asking.
ALWAYS: Final[Mapping[str, str]] = MappingProxyType(
    {"x-content-type-options": "nosniff", "cross-origin-resource-policy": "same-site"}
)
_SEALED = "private, max-age=60, stale-while-revalidate=300"


def described(live: Live) -> dict[str, str]:
    """Return the headers of a stream, for HEAD and PUT."""
    entry = live.entry
    headers = {"content-type": entry.content_type, "stream-next-offset": live.tail_offset}
    if entry.ttl_s is not None:
        headers["stream-ttl"] = str(entry.ttl_s)
    if entry.expires_at is not None:
        headers["stream-expires-at"] = entry.expires_at
    if live.mark.is_closed:
        headers["stream-closed"] = "true"
    return headers


def etag(live: Live, after: int, piece: Piece) -> str:
    """Return the strong tag of a piece: its place, a hash of its values, and whether a closed stream ends there.

    A delete of records changes the values of a place, so the place alone is no tag.
    """
    end = ":c" if piece.is_closed else ""
    found = blake2b(digest_size=8)
    for value in piece.values:
        found.update(len(value).to_bytes(8, "little"))
        found.update(value)
    return f'"{live.topic.topic_id:x}:{after}:{piece.last}:{found.hexdigest()}{end}"'


def piece_headers(live: Live, after: int, piece: Piece, *, cursor: str | None, is_now: bool) -> dict[str, str]:
    headers = {"content-type": live.entry.content_type, "stream-next-offset": live.offset(piece.last)}
    if piece.is_tail:
        headers["stream-up-to-date"] = "true"
    if piece.is_closed:
        headers["stream-closed"] = "true"
    if cursor is not None and not piece.is_closed:
        headers["stream-cursor"] = cursor
    if is_now:
        return headers | {"cache-control": "no-store"}
    is_sealed = bool(piece.values) and piece.last <= live.topic.sealed_seq and not piece.is_tail
    return headers | {"etag": etag(live, after, piece), "cache-control": _SEALED if is_sealed else "private, no-cache"}


def piece_response(live: Live, piece: Piece, headers: Mapping[str, str], etags: frozenset[str]) -> Response:
    """Return the answer of a read, or 304 if the client has it already."""
    if "etag" in headers and (headers["etag"] in etags or "*" in etags):
        return Response(status_code=304, headers={**_without_type(headers), **ALWAYS})
    return Response(joined(live.entry.content_type, piece.values), headers={**headers, **ALWAYS})


def error_response(error: Exception) -> Response:
    response = answer_of(error)
    given = error.headers if isinstance(error, StreamRefused) else {}
    for name, text in {**given, **ALWAYS, "cache-control": "no-store"}.items():
        response.headers[name] = text
    return response


def _without_type(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in headers.items() if name != "content-type"}
