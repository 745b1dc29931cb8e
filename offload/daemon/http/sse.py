"""Server-sent events, the lines of `text/event-stream`. No I/O.

Source: the HTML standard, section 9.2, https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["KEEP_ALIVE", "encode_event"]

KEEP_ALIVE: Final = b":\n\n"
"""A comment. It keeps proxies from closing an idle connection, and readers pass over it."""

_LINE_END = re.compile("\r\n|\r|\n")


def encode_event(name: str, data: str, event_id: str | None = None) -> bytes:
    """Return an event. Each line of `data` becomes a field, so its line ends arrive as line feeds.

    Raises ValueError if the name or the id is empty, or holds a line end or a NUL.
    """
    for text in (name, event_id):
        if text is not None and (not text or "\0" in text or _LINE_END.search(text)):
            raise ValueError(f"{text!r} is no name or id of an event")
    head = "" if event_id is None else f"id: {event_id}\n"
    fields = "".join(f"data: {line}\n" for line in _LINE_END.split(data))
    return f"{head}event: {name}\n{fields}\n".encode()
