"""The words that may come next on a command line, for the completion of a shell.

`seglog __complete WORDS...` prints them, each with its help behind a tab. The user is typing the last word, which may
be empty. Exit code 1 stands for the names of files, which the shell knows itself (offload.cli.shells).

**The names** of topics, branches and tags are those that a data directory knows.

    meta/snapshot.*.json    the topics of the log, as of its newest checkpoint (seglog.wal.manifest)
    catalog.db              the topics and branches that have a volume here, and the tags that were made or listed here
                            (catalog.local_catalog)

No function asks the remote, and none changes a file. The modules that own these files need longer for their import than
a completion may take. So this module reads the names itself, and checks nothing else. A file that is damaged, or that
another process changes meanwhile, gives no names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from offload.cli.help import summary
from offload.cli.parser import is_option, path_of
from offload.cli.top import ANYWHERE, GROUPS, HELP, HELP_COMMAND, OPTIONS
from offload.operations.command_list import COMMANDS
from offload.operations.listed_command import ListedParameter

Words = Iterable[tuple[str, str]]


def candidates(words: Sequence[str], variables: Mapping[str, str]) -> list[tuple[str, str]] | None:
    """Return the words that may take the place of the last one, with their help. None stands for names of files."""
    *before, typed = words or [""]
    line = _Line(before, variables.get("SEGLOG_DIR") or ".")
    words_next = line.next_words(typed)
    return None if words_next is None else [(word, text) for word, text in words_next if word.startswith(typed)]


class _Line:
    """The words before the last one: the command so far, its arguments, and the option that waits for its value."""

    def __init__(self, words: Sequence[str], directory: str) -> None:
        self.path = ""
        self.options: tuple[ListedParameter, ...] = (*OPTIONS, HELP)
        self.arguments: list[str] = []
        self.directory = directory
        self.awaits: ListedParameter | None = None
        self.is_past_options = False
        for word in words:
            self._add(word)

    def next_words(self, typed: str) -> Words | None:
        """Return the words that may follow, or None for the names of files. Some may not begin as `typed` does."""
        if self.awaits is not None:
            return self._values(self.awaits, typed)
        if typed.startswith("-") and not self.is_past_options:
            name, has_value, text = typed.partition("=")
            if has_value:
                values = self._values(self._option(name), text)
                return values and ((f"{name}={word}", about) for word, about in values)
            return ((name, option.help) for option in self.options for name in option.options)
        if self.path not in COMMANDS:
            return _names(self.path)
        if any(_names(self.path)) and not self.arguments:
            return _names(self.path)
        arguments = COMMANDS[self.path].arguments[len(self.arguments) :]
        return self._values(arguments[0] if arguments else None, typed)

    def _add(self, word: str) -> None:
        if self.awaits is not None:
            self._take(self.awaits, word)
            self.awaits = None
        elif word == "--":
            self.is_past_options = True
        elif is_option(word) and not self.is_past_options:
            self._add_option(word)
        elif self.path in COMMANDS and f"{self.path}/{word}" not in COMMANDS:
            self.arguments.append(word)
        elif not self.path and word == HELP_COMMAND.path:
            return
        else:
            self.path = f"{self.path}/{word}" if self.path else path_of(word)
            own = COMMANDS[self.path].options if self.path in COMMANDS else []
            self.options = (*own, *ANYWHERE, HELP)

    def _add_option(self, word: str) -> None:
        """Add an option. If the word has no value, the next word is the value."""
        if word.startswith("--"):
            name, has_value, value = word.partition("=")
        else:
            name = word[:2]
            has_value = value = word[2:].removeprefix("=")
        option = self._option(name)
        if option is not None and has_value:
            self._take(option, value)
        else:
            self.awaits = option

    def _take(self, option: ListedParameter, value: str) -> None:
        if option.name == "directory":
            self.directory = value

    def _option(self, word: str) -> ListedParameter | None:
        """Return the option with this name that takes a value."""
        options = [option for option in self.options if word in option.options and option.kind != "bool"]
        return options[0] if options else None

    def _values(self, parameter: ListedParameter | None, typed: str) -> Words | None:
        if parameter is None:
            return []
        if parameter.kind in ("list", "path"):
            return None
        has_names = parameter.names not in ("", "time")
        names = self._known(parameter.names, typed) if has_names else parameter.choices
        return [(name, "") for name in names]

    def _known(self, names: str, typed: str) -> list[str]:
        """Return the names of one kind that the data directory knows, or the plain targets and the tags."""
        topic = self.arguments[0].partition("@")[0] if self.arguments else ""
        if names == "tag":
            return sorted(tags(self.directory, topic))
        if names == "target":
            return _targets(self.directory, topic)
        prefix, colon, _ = typed.partition(":")
        if names == "point" and colon:
            return [f"{prefix}:{target}" for target in _targets(self.directory, prefix.partition("@")[0])]
        if names == "branch":
            return sorted(branches(self.directory, topic))
        names_here = topics(self.directory)
        if names == "plain topic":
            return sorted({name.partition("@")[0] for name in names_here})
        topic, is_branch, _ = typed.partition("@")
        return sorted({*names_here, *(f"{topic}@{name}" for name in branches(self.directory, topic) if is_branch)})


def _targets(directory: str, topic: str) -> list[str]:
    """Return the plain targets, and the tags of the topic as targets."""
    return ["head", "head~1", *(f"tag:{name}" for name in sorted(tags(directory, topic)))]


def _names(path: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a group, or of the top, and the groups there."""
    for command in (*COMMANDS.values(), *GROUPS.values()):
        group, _, name = command.path.rpartition("/")
        names = [*([name] if group == path else []), *(() if path else command.aliases)]
        yield from ((name, summary(command)) for name in names)


_WAIT_S = 0.05


def topics(directory: str) -> set[str]:
    """Return the topics, and the branches that are topics here, each as TOPIC@BRANCH."""
    return {*_in_manifest(directory), *_in_catalog(directory, "SELECT name FROM handles")}


def branches(directory: str, topic: str) -> set[str]:
    names = {name.partition("@")[2] for name in topics(directory) if name.startswith(f"{topic}@")}
    return {"main", *names}


def tags(directory: str, topic: str) -> set[str]:
    query = "SELECT substr(key, ?) FROM objects WHERE key >= ? AND key < ?"
    prefix = f"tags/{topic}"
    return set(_in_catalog(directory, query, len(prefix) + 2, f"{prefix}/", f"{prefix}0"))  # "0" follows "/"


def _in_manifest(directory: str) -> list[str]:
    import json

    try:
        names = [name for name in os.listdir(f"{directory}/meta") if name.startswith("snapshot.")]
        with open(f"{directory}/meta/{max(names)}", encoding="utf-8") as file:
            return [topic["name"] for topic in json.loads(file.readline())["topics"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _in_catalog(directory: str, query: str, *values: str | int) -> list[str]:
    """Return the names that a query gives.

    While a process has the database open, its newest changes are in other files. SQLite finds these files through
    catalog.db-shm. Without that file SQLite must make none, so the database counts as immutable.
    """
    import sqlite3

    path = os.path.abspath(f"{directory}/catalog.db")
    is_open = os.path.exists(f"{path}-shm")
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    try:
        connection = sqlite3.connect(
            f"file:{quoted}?mode=ro&immutable={0 if is_open else 1}", timeout=_WAIT_S, uri=True
        )
        try:
            return [str(name) for (name,) in connection.execute(query, values)]
        finally:
            connection.close()
    except sqlite3.Error:
        return []
