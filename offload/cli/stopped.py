"""The words of a command that a signal stopped. A command that only reads has none, and leaves nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

#: Commands that change something, but not through the registry, and have no line of their own (`told`).
_OTHERS = frozenset({"demo", "init"})

#: Commands whose own line covers their work (`told`), but not the moments before and after it.
_TOLD = frozenset({"append", "export", "follow", "recover"})


@contextmanager
def told(line: Callable[[], str]) -> Iterator[None]:
    """If a signal stops the block, give the exception a line about it. The front door prints the line."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.args = (line(),)
        raise


def hint_of(path: str, values: Mapping[str, Any]) -> str:
    """Return the next step after a command without a line of its own, or "" if it changes nothing."""
    from offload.operations.command import COMMANDS

    if path == "undo" and values.get("commit") is None and not (values.get("change") or "").isdecimal():
        topic = values.get("change")
        if topic is not None:
            return f"another one may take back one more delete: `seglog undo {topic} --dry-run` shows which"
        return "another `seglog undo` may take back one more change: `seglog oplog` shows the newest ones"
    if path in _OTHERS or (path in COMMANDS and not COMMANDS[path].reads(values) and not values.get("follow")):
        return "it may be done in part: the same command completes it, or says that it is done"
    if path in _TOLD:
        return "it had not begun, or it was done already: look before you repeat it"
    return ""
