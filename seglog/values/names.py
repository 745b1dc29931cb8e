"""The grammar of topic names: NAME or NAME@BRANCH."""

from __future__ import annotations

import re

from seglog.arguments import TEXT, taken
from seglog.errors import InvalidTopicName

__all__ = ["BRANCH_MARK", "check_topic_name"]

BRANCH_MARK = "@"

_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
_TOPIC = re.compile(f"{_NAME}(?:@{_NAME})?", re.ASCII)


def check_topic_name(name: str) -> str:
    """`name`, or `InvalidTopicName`; `InvalidArgument` for what is no text.

    The whole of it has to match: `$` would let a trailing line end through.
    """
    if type(name) is not str:
        name = taken("name", name, TEXT)
    if not _TOPIC.fullmatch(name):
        raise InvalidTopicName(name)
    return name
