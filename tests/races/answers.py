"""What an answer of the daemon says, as plain values: without times, random ids, and texts of errors."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from tests.races.daemon import Answer

__all__ = ["said"]

_SAID = ("stream-next-offset", "stream-closed", "stream-up-to-date", "content-type")
_RANDOM = re.compile(r"_g[0-9a-f]+")
_LEFT_OUT = {
    "ts_ms", "time", "incarnation", "request_id", "detail", "hint", "lsn", "seconds", "created_at_ms", "id", "vid",
    "carried_from",
}  # fmt: skip


#: Where a topic or a stream ends is looked up after the change, so the other call may have come in between.
_LATER = {"next_seq", "head_seq", "stream-next-offset"}


def said(answer: Answer, *, is_change: bool = False, but: Collection[str] = ()) -> object:
    """Return what an answer says, without times, random ids and the keys `but`. A change says no `_LATER` either."""
    left_out = {*_LEFT_OUT, *(_LATER if is_change else ()), *but}
    headers = {name: text for name, text in answer.headers.items() if name in _SAID and name not in left_out}
    text = _RANDOM.sub("_g", answer.body.decode())
    if answer.status >= 400:
        return [answer.status, _title(text)]
    if "text/event-stream" in headers.get("content-type", ""):
        lines = [each.removeprefix("data:").strip() for each in text.splitlines() if each.startswith("data:")]
    else:
        lines = text.splitlines()
    return [answer.status, headers, [_plain(each, left_out) for each in lines]]


def _title(text: str) -> str:
    """Return the title of a problem, or the text of an error that is none."""
    try:
        return str(json.loads(text)["title"]) if text else ""
    except ValueError:
        return text


def _plain(line: str, left_out: set[str]) -> Any:
    """Return a line of JSON without these keys, or the line if it is none."""
    try:
        return _without(json.loads(line), left_out)
    except ValueError:
        return line


def _without(value: Any, left_out: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(each, left_out) for name, each in value.items() if name not in left_out}
    return [_without(each, left_out) for each in value] if isinstance(value, list) else value
