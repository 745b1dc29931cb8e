"""The words that may come next on a command line, for the completion of a shell.

`seglog __complete WORDS...` prints them, each with its help behind a tab. The last word is the one that is typed, and
may be empty. Names of topics, branches and tags are not among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from offload.cli.help import summary
from offload.cli.listed import ListedParameter
from offload.cli.listing import COMMANDS
from offload.cli.top import ANYWHERE, GROUPS, HELP, OPTIONS

__all__ = ["candidates"]


def candidates(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the words that may take the place of the last one, with their help."""
    *before, typed = words or [""]
    path, options, awaits = _context(before)
    if awaits is not None:
        found: Iterable[tuple[str, str]] = [(choice, "") for choice in awaits.choices]
    elif typed.startswith("-"):
        found = [(name, each.help) for each in options for name in each.options]
    else:
        found = [] if path in COMMANDS else _names(path)
    return [(word, text) for word, text in found if word.startswith(typed)]


def _context(words: Sequence[str]) -> tuple[str, tuple[ListedParameter, ...], ListedParameter | None]:
    """Return the command so far, its options, and the option that waits for its value."""
    path, awaits = "", None
    options: tuple[ListedParameter, ...] = (*OPTIONS, HELP)
    for word in words:
        if awaits is not None:
            awaits = None
        elif word.startswith("-"):
            named = [each for each in options if word in each.options and each.kind != "bool"]
            awaits = named[0] if named else None
        elif path not in COMMANDS:
            path = f"{path}/{word}" if path else word
            own = COMMANDS[path].options if path in COMMANDS else []
            options = (*own, *ANYWHERE, HELP)
    return path, options, awaits


def _names(path: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a group, or of the top, and the groups there."""
    for each in COMMANDS.values():
        group, _, name = each.path.rpartition("/")
        if group == path:
            yield name, summary(each)
    if not path:
        yield from GROUPS.items()
