"""The texts of `seglog --help` and of `seglog CMD --help`, from the list of the commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from offload.cli.top import ENDING, GROUPS, HELP, MORE, OPTIONS, SUMMARY
from offload.operations.command_list import COMMANDS
from offload.operations.listed_command import SECTIONS, ListedCommand, ListedParameter

_WIDEST = 120
_NARROWEST = 50


def help_text(path: str, columns: int, *, is_full: bool = False) -> str:
    """Return the help for a command or a group, or for the top if `path` is "". No line is wider than `columns`.

    That of the top has the frequent commands. If it `is_full`, it has all commands and options.
    """
    width = max(_NARROWEST, min(columns, _WIDEST)) - 1
    if not path:
        return "\n".join(_top_lines(width, is_full=is_full)) + "\n"
    return "\n".join(_command_lines((COMMANDS.get(path) or GROUPS[path]), width)) + "\n"


def summary(command: ListedCommand) -> str:
    """Return the first sentence of a command's help."""
    [first, *_] = command.help.split("\n\n")
    return " ".join(first.split()).partition(". ")[0].removesuffix(".") + "."


def _command_lines(command: ListedCommand, width: int) -> list[str]:
    words = [argument.word if argument.is_required else f"[{argument.word}]" for argument in command.arguments]
    if command.path in GROUPS:
        words = ["COMMAND [ARGS]..."]
    lines = [" ".join(["Usage: seglog", command.name, "[OPTIONS]", *words]), ""]
    lines += _paragraphs(command.help, width)
    if command.aliases:
        lines += ["", f"  Also: {', '.join(f'seglog {alias}' for alias in command.aliases)}"]
    if command.arguments:
        rows = [(f"{argument.word}{_kind(argument)}", _meaning(argument)) for argument in command.arguments]
        lines += ["", "Arguments:", *_table(rows, width)]
    lines += ["", "Options:", *_option_rows((*command.options, HELP), width)]
    below = [child for path, child in COMMANDS.items() if path.rpartition("/")[0] == command.path]
    rows = [(child.path.rpartition("/")[2], summary(child)) for child in below]
    return [*lines, "", "Commands:", *_table(rows, width)] if rows else lines


def _top_lines(width: int, *, is_full: bool) -> list[str]:
    lines = ["Usage: seglog [OPTIONS] COMMAND [ARGS]...", "", *_paragraphs(SUMMARY, width)]
    shown = SECTIONS if is_full else SECTIONS[:-1]
    rows = {section: _section_rows(section) for section in shown}
    first = max(len(names) for each in rows.values() for names, _ in each)
    for section in shown:
        lines += ["", f"{section.capitalize()}:", *_table(rows[section], width, first)]
    if is_full:
        lines += ["", "Options:", *_option_rows((*OPTIONS, HELP), width)]
    return [*lines, "", *_paragraphs(ENDING if is_full else MORE, width)]


def _section_rows(section: str) -> list[tuple[str, str]]:
    """Return the commands of a section of the top, and the groups there. A command of a group stands by its alias."""
    rows = []
    for command in (*COMMANDS.values(), *GROUPS.values()):
        names = [command.path, *command.aliases][command.path.count("/") :]
        if names and command.section == section:
            rows.append((", ".join(names), summary(command)))
    return rows


def _option_rows(options: Iterable[ListedParameter], width: int) -> list[str]:
    return _table([(f"{', '.join(option.options)}{_kind(option)}", _meaning(option)) for option in options], width)


def _kind(parameter: ListedParameter) -> str:
    """Return the kind of the value, as it stands behind the name: ` <int>`."""
    if parameter.kind == "bool":
        return ""
    if parameter.options and parameter.metavar:
        return f" {parameter.metavar}"
    return f" <{'|'.join(parameter.choices) or parameter.kind}>"


def _meaning(parameter: ListedParameter) -> str:
    """Return the help, with the environment variable, the default and the range in brackets."""
    facts = []
    if parameter.variable:
        facts.append(f"env var: {parameter.variable}")
    default = parameter.shown_default
    if default is None and parameter.kind != "bool" and parameter.default not in (None, ""):
        default = str(parameter.default)
    if default is not None:
        facts.append(f"default: {default}")
    if parameter.least is not None:
        facts.append(f"at least {parameter.least:g}")
    if parameter.is_required:
        facts.append("required")
    return f"{parameter.help} [{'; '.join(facts)}]" if facts else parameter.help


def _table(rows: Sequence[tuple[str, str]], width: int, first: int = 0) -> list[str]:
    """Return the rows in two columns, the first one of `first` at least. A wider first cell gets its own line."""
    first = min(max([first, *(len(left) for left, _ in rows)]), 30) + 4
    lines = []
    for left, right in rows:
        wrapped = _wrapped(right, width - first)
        head = f"  {left}"
        if len(head) + 2 > first:
            lines.append(head)
            head = ""
        lines += [f"{head if not index else '':{first}}{part}" for index, part in enumerate(wrapped)]
    return lines


def _paragraphs(text: str, width: int) -> list[str]:
    """Return the paragraphs of a text, indented. A line that begins with "Example" begins a new line here."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        pieces = [""]
        for line in paragraph.splitlines():
            pieces[-1:] = [pieces[-1], line] if line.startswith("Example") else [f"{pieces[-1]} {line}"]
        lines += ["", *(f"  {line}" for piece in pieces for line in _wrapped(piece, width - 2))]
    return lines[1:]


def _wrapped(text: str, width: int) -> list[str]:
    """Return the words of a text as lines of at most `width` characters. A longer word has its own line."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
