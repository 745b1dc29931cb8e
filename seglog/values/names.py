"""The grammar of topic names: NAME or NAME@BRANCH."""

from __future__ import annotations

import re

from seglog.base.arguments import TEXT, taken
from seglog.base.lazy import pattern
from seglog.errors import InvalidName

BRANCH_MARK = "@"

_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
_TOPIC = pattern(f"{_NAME}(?:@{_NAME})?", re.ASCII)


def check_topic_name(name: str) -> str:
    """Return `name`. Raise `InvalidName` for a wrong name, and `InvalidArgument` for a value that is not text.

    The pattern has to match the whole name. A `$` would accept a trailing line end.
    """
    if type(name) is not str:
        name = taken("name", name, TEXT)
    if not _TOPIC.fullmatch(name):
        raise InvalidName("topic", name, f"NAME or NAME@BRANCH, each {InvalidName.hint}")
    return name
