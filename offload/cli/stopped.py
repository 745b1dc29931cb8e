"""The next step after a signal stopped a command. A command that only reads leaves nothing to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offload.commands.registry import COMMANDS

__all__ = ["hint_of"]

#: Commands that change something, but not through the registry. `append`, `export` and `recover` say it themselves.
_OTHERS = frozenset({"init"})


def hint_of(path: str, values: Mapping[str, Any]) -> str:
    """Return how to complete the command, or "" if it changes nothing."""
    if path == "undo" and values.get("change") is None:
        return "another `seglog undo` may take back one more change: `seglog oplog` shows the newest ones"
    if path in _OTHERS or (path in COMMANDS and not COMMANDS[path].reads(values) and not values.get("follow")):
        return "it may be done in part: the same command completes it, or says that it is done"
    return ""
