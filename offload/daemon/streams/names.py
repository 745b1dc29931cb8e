"""The path of a stream, and the name of its topic.

    in the path                 in the name
    A-Z a-z 0-9 -               itself, but `-` as `_2d` at the beginning
    /                           `.`, but `_2f` at the beginning
    _                           `__`
    any other byte of UTF-8     `_` and two hexadecimal digits

PATHNAME-1  Two paths never have one name. A name that begins with `_s` is no stream's: the daemon uses such names.
PATHNAME-2  A name has at most 128 characters. A path whose name is longer is refused, never cut.

No I/O.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

from offload.daemon.streams.errors import InvalidStreamPath

__all__ = ["ROOT", "location", "path_of", "source_path", "topic_name"]

ROOT = "/streams/"
_NAME_MAX = 128
_RESERVED = "__ds"
_ITSELF = re.compile(rb"[A-Za-z0-9-]")


def path_of(raw: bytes) -> str:
    """Return the path of a stream from the raw path of a URL behind `/streams/`. `%2f` is a slash.

    Raise `InvalidStreamPath` for an empty path, bytes that are not UTF-8, and a path that the protocol reserves.
    """
    try:
        path = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise InvalidStreamPath("it is not UTF-8") from None
    if not path:
        raise InvalidStreamPath("it is empty")
    if path.partition("/")[0] == _RESERVED:
        raise InvalidStreamPath(f"the protocol reserves {_RESERVED} for subscriptions, which this server does not have")
    return path


def source_path(header: str) -> str:
    """Return the path of the stream that `Stream-Forked-From` names: a path of a URL, with `/streams/` or without."""
    raw = header.encode("latin-1", "replace").partition(b"?")[0]
    return path_of(raw.removeprefix(ROOT.encode()) if raw.startswith(ROOT.encode()) else raw.removeprefix(b"/"))


def topic_name(path: str) -> str:
    """Return the name of the stream's topic. Raise `InvalidStreamPath` if it is too long (PATHNAME-2)."""
    data = path.encode()
    parts = [_escaped(data[at : at + 1], is_first=at == 0) for at in range(len(data))]
    name = "".join(parts)
    if len(name) > _NAME_MAX:
        told = f"the name of its topic would have {len(name)} characters, and {_NAME_MAX} is the maximum"
        raise InvalidStreamPath(told)
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
