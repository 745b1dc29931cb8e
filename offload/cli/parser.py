"""The words of a command line, as a request: which command, with which options and values.

    seglog -C data read orders --from 100 --json      the command `read`, the options of the top, the values of `read`
    seglog branch --help                              help for `branch`, as `seglog help branch`
    seglog ls                                         the command `topic list`, by its other name

    seglog bisect t --good head~9 run grep -q x       the last argument of `bisect` takes the rest of the line

The options of the top stand before the command, and `--json` also after it. An option takes its value as `--from 100`,
`--from=100`, `-m text` or `-mtext`. Flags of one letter may stand together. After `--`, each word is an argument. If an
option is given twice, the last one counts. An option of the kind list collects the values of each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from offload.cli.top import ANYWHERE, GROUPS, HELP, HELP_COMMAND, OPTIONS, VERSION_COMMAND
from offload.operations.command_list import COMMANDS
from offload.operations.listed_command import ListedCommand, ListedParameter


class UsageError(Exception):
    """The words are no command. `command` is the path of the command that they begin with, or "" without one."""

    exit_code = 2

    def __init__(self, message: str, command: str = "") -> None:
        super().__init__(message)
        name = " ".join(["seglog", *filter(None, command.split("/"))])
        self.hint = f"see `{name} --help`"


class Request:
    """A command line. `kind` is `help`, `no command`, `run` or `version`.

    `path` names a command or a group, and is "" for the top. `options` are those of the top. `values` are those of the
    command, by the names of its parameters.
    """

    __slots__ = ("kind", "options", "path", "values")

    def __init__(self, kind: str, path: str, options: dict[str, object], values: dict[str, object]) -> None:
        self.kind = kind
        self.path = path
        self.options = options
        self.values = values


def request_of(words: Sequence[str], variables: Mapping[str, str]) -> Request:
    """Return the request. Raises `UsageError`."""
    rest = list(words)
    options: dict[str, object] = {
        option.name: variables.get(option.variable or "") or option.default for option in OPTIONS
    }
    before = _Scan("", (*OPTIONS, HELP), options)
    before.leading(rest)
    if options.pop("version"):
        return Request("version", "", options, {})
    if before.wants_help or not rest:
        return Request("help" if before.wants_help else "no command", "", options, {})
    path = rest.pop(0)
    if path == HELP_COMMAND.path:
        return request_of([*rest, *HELP.options[-1:]], variables)
    path = path_of(path)
    if path in GROUPS:
        group = _Scan(path, (*ANYWHERE, HELP), options)
        group.leading(rest)
        if group.wants_help or not rest:
            return Request("help" if group.wants_help else "no command", path, options, {})
        path = f"{path}/{rest.pop(0)}"
    elif rest and f"{path}/{rest[0]}" in COMMANDS:  # a command with commands below it, as `gc plan`
        path = f"{path}/{rest.pop(0)}"
    command = COMMANDS.get(path)
    if command is None:
        raise _no_command(path)
    request = _command_request(command, rest, options)
    return Request("version", "", options, {}) if path == VERSION_COMMAND.path and request.kind == "run" else request


def path_of(word: str) -> str:
    """Return the path of the command with this other name, or else the word."""
    return next((command.path for command in COMMANDS.values() if word in command.aliases), word)


def _command_request(command: ListedCommand, words: list[str], options: dict[str, object]) -> Request:
    values: dict[str, object] = {parameter.name: parameter.default for parameter in command.parameters}
    top: dict[str, object] = {}
    scan = _Scan(command.path, (*command.options, *ANYWHERE, HELP), values, {option.name: top for option in ANYWHERE})
    takes_rest = bool(command.arguments) and command.arguments[-1].kind == "list"
    arguments = scan.all(words, len(command.arguments) - 1 if takes_rest else None)
    options.update(top)
    if scan.wants_help:
        return Request("help", command.path, options, {})
    rest = arguments[len(command.arguments) - 1 :] if takes_rest else []
    if rest:
        values[command.arguments[-1].name] = rest
        arguments = arguments[: -len(rest)]
    for parameter, word in zip(command.arguments, arguments, strict=False):
        values[parameter.name] = _value(parameter, word, parameter.word, command.path)
    for parameter in command.parameters:
        if parameter.is_required and values[parameter.name] is None:
            raise UsageError(f"{command.name} needs {_shown(parameter)}", command.path)
    if len(arguments) > len(command.arguments):
        raise UsageError(f"{command.name} takes no argument {arguments[len(command.arguments)]!r}", command.path)
    return Request("run", command.path, options, values)


class _Scan:
    """Takes options from words, and puts their values into `values`, or into the mapping of `elsewhere`."""

    def __init__(
        self,
        path: str,
        parameters: Iterable[ListedParameter],
        values: dict[str, object],
        elsewhere: Mapping[str, dict[str, object]] | None = None,
    ) -> None:
        self.wants_help = False
        self._path = path
        self._named = {name: parameter for parameter in parameters for name in parameter.options}
        self._values = values
        self._elsewhere = elsewhere or {}

    def leading(self, words: list[str]) -> None:
        """Take the options before the first other word, out of `words`."""
        while words and is_option(words[0]):
            word = words.pop(0)
            if word == "--":
                return
            self._take(word, words)

    def all(self, words: list[str], count: int | None) -> list[str]:
        """Take all options, and return the other words. No option stands behind `count` of them."""
        others: list[str] = []
        while words and len(others) != count:
            word = words.pop(0)
            if word == "--":
                return others + words
            if is_option(word):
                self._take(word, words)
            else:
                others.append(word)
        return others + words

    def _take(self, word: str, words: list[str]) -> None:
        if word.startswith("--"):
            name, has_value, text = word.partition("=")
            self._set(name, text if has_value else None, words)
            return
        letters = word[1:]
        while letters:
            name, letters = f"-{letters[0]}", letters[1:]
            if self._parameter(name).kind == "bool":
                self._set(name, None, words)
            else:
                self._set(name, letters.removeprefix("=") or None, words)
                return

    def _set(self, name: str, text: str | None, words: list[str]) -> None:
        parameter = self._parameter(name)
        if parameter.kind == "bool":
            if text is not None:
                raise UsageError(f"{name} takes no value", self._path)
            value: object = True
        elif text is None and not words:
            raise UsageError(f"{name} needs a value", self._path)
        else:
            value = _value(parameter, words.pop(0) if text is None else text, name, self._path)
        if parameter is HELP:
            self.wants_help = True
        else:
            values = self._elsewhere.get(parameter.name, self._values)
            values[parameter.name] = (
                [*(values[parameter.name] or ()), value] if parameter.kind == "list" else value  # type: ignore[misc]
            )

    def _parameter(self, name: str) -> ListedParameter:
        if name in self._named:
            return self._named[name]
        subject = f"{self._path.replace('/', ' ')} has" if self._path else "there is"
        is_of_top = any(name in option.options for option in OPTIONS)
        more = ": it stands before the command" if is_of_top else _similar(name, self._named)
        raise UsageError(f"{subject} no option {name}{more}", self._path)


def is_option(word: str) -> bool:
    """Return True for a word that begins with a dash. A dash alone is an argument: it stands for standard input."""
    return word.startswith("-") and word != "-"


def _value(parameter: ListedParameter, text: str, name: str, path: str) -> object:
    """Return the value that a word stands for. Raises `UsageError`."""
    if parameter.kind in ("int", "float"):
        return _number(parameter, text, name, path)
    if parameter.kind != "path" and not _is_utf8(text):
        raise UsageError(f"{name} is not UTF-8: {text.encode(errors='surrogateescape')!r}", path)
    if parameter.choices and text not in parameter.choices:
        *others, last = parameter.choices
        choices = f"{', '.join(others)} or {last}" if others else last
        raise UsageError(f"{name} takes {choices}, not {text!r}", path)
    return text.removesuffix("@main") if parameter.is_topic else text


def _is_utf8(text: str) -> bool:
    """Return False if the word has a byte that is no UTF-8. Python puts a lone surrogate in the place of each."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(parameter: ListedParameter, text: str, name: str, path: str) -> int | float:
    noun = "a whole number" if parameter.kind == "int" else "a number"
    try:
        value = int(text) if parameter.kind == "int" else float(text)
    except ValueError:
        raise UsageError(f"{name} takes {noun}, not {text!r}", path) from None
    if parameter.least is not None and not value >= parameter.least:  # NaN fails this comparison as well
        raise UsageError(f"{name} takes {noun} from {parameter.least:g} on, not {text}", path)
    return value


def _shown(parameter: ListedParameter) -> str:
    return parameter.options[-1] if parameter.options else parameter.word


def _no_command(path: str) -> UsageError:
    group, _, name = path.rpartition("/")
    siblings = [path for path in (*COMMANDS, *GROUPS) if path.rpartition("/")[0] == group]
    names = [path.rpartition("/")[2] for path in siblings]
    names += [alias for command in COMMANDS.values() for alias in command.aliases if not group]
    return UsageError(f"there is no command {path.replace('/', ' ')}{_similar(name, names)}", group)


def _similar(name: str, names: Iterable[str]) -> str:
    """Return the names that look like a wrong one, in parentheses."""
    from difflib import get_close_matches

    alike = get_close_matches(name, list(names))
    return f" (similar: {', '.join(alike)})" if alike else ""
