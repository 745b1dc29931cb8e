"""A setting, said once, where its field is: key, default, unit, range and meaning.

    @dataclass(frozen=True, slots=True)
    class LogSettings:
        wal_file_bytes: int = number(64 * MIB, "bytes", 4096, 1024 * MIB, "of one file of the write-ahead log")

Checks and their errors, the seglog.toml of `seglog init`, the environment of the command and docs/configuration.md read
it from there. The class names its section as `SECTION`. The name of a setting is `section.key`, its environment
variable `SEGLOG_SECTION_KEY`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias, TypeVar

from seglog.errors import InvalidSetting

__all__ = [
    "Setting",
    "check_settings",
    "choice",
    "from_section",
    "number",
    "path",
    "settings_of",
    "text",
    "toml_lines",
    "variables_of",
]

_PREFIX = "SEGLOG_"
_FIELD = "setting"
Value: TypeAlias = int | str
_Settings = TypeVar("_Settings")


@dataclass(frozen=True, slots=True)
class Setting:
    """`choices` for a text out of a few, `low` and `high` for a whole number; a `high` of None is no bound.

    `word` may stand in place of the number, such as "never". `is_text`: any text; `is_path`: of a file or directory.
    """

    section: str
    key: str
    default: Value
    unit: str
    meaning: str
    choices: tuple[str, ...] = ()
    low: int = 0
    high: int | None = None
    word: str | None = None
    is_text: bool = False
    is_path: bool = False

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"

    @property
    def variable(self) -> str:
        return f"{_PREFIX}{self.section}_{self.key}".upper()

    @property
    def allowed(self) -> str:
        """In words, for errors and the docs."""
        if self.is_path:
            return "a path"
        if self.choices:
            return " or ".join((", ".join(self.choices[:-1]), self.choices[-1]))
        if self.is_text:
            return "text"
        numbers = f"{self.low} and more" if self.high is None else f"{self.low} to {self.high}"
        return f"{numbers}, or {self.word}" if self.word else numbers

    def check(self, value: object) -> None:
        """Raises `InvalidSetting`."""
        if self.is_path:
            if type(value) is not str or "\0" in value:
                raise InvalidSetting(self.name, f"{value!r} is not {self.allowed}")
        elif self.choices:
            if type(value) is not str or value not in self.choices:
                raise InvalidSetting(self.name, f"{value!r} is not {self.allowed}")
        elif self.is_text:
            if type(value) is not str:
                raise InvalidSetting(self.name, f"{value!r} is not a text")
        elif self.word is not None and value == self.word:
            return
        elif type(value) is not int or value < self.low or (self.high is not None and value > self.high):
            raise InvalidSetting(self.name, f"{value!r} is not a whole number, {self.allowed}")

    def parse(self, text: str) -> Value:
        """What a variable of the environment says. Raises `InvalidSetting`, which names the variable."""
        is_number = not (self.choices or self.is_text or self.is_path)
        value: Value = int(text) if is_number and text.isascii() and text.isdigit() else text
        try:
            self.check(value)
        except InvalidSetting as error:
            raise InvalidSetting(self.name, f"{error.reason} (from {self.variable})") from error
        return value


def number(default: Value, unit: str, low: int, high: int | None, meaning: str, *, word: str | None = None) -> Any:
    """The default of a dataclass field, whose value is a whole number, or `word`."""
    said = {"unit": unit, "low": low, "high": high, "meaning": meaning, "word": word}
    return field(default=default, metadata={_FIELD: said})


def text(default: str, meaning: str) -> Any:
    """The default of a dataclass field, whose value is any text."""
    return field(default=default, metadata={_FIELD: {"unit": "", "meaning": meaning, "is_text": True}})


def choice(default: str, choices: Iterable[str], meaning: str) -> Any:
    """The default of a dataclass field, whose value is one of these."""
    return field(default=default, metadata={_FIELD: {"unit": "", "choices": tuple(choices), "meaning": meaning}})


def path(meaning: str) -> Any:
    """The default of a dataclass field, whose value is a path as a text; empty, as it is by default: none."""
    return field(default="", metadata={_FIELD: {"unit": "", "meaning": meaning, "is_path": True}})


def settings_of(kind: type[Any]) -> dict[str, Setting]:
    """By key, in the order of the fields."""
    found = {}
    for item in fields(kind):
        default: Any = item.default
        found[item.name] = Setting(kind.SECTION, item.name, default, **item.metadata[_FIELD])
    return found


def check_settings(values: Any) -> None:
    """For `__post_init__`. Raises `InvalidSetting`."""
    for key, setting in settings_of(type(values)).items():
        setting.check(getattr(values, key))


def from_section(kind: type[_Settings], section: object, variables: Mapping[str, str]) -> _Settings:
    """Of a section of seglog.toml, and of the environment, which wins. Raises `InvalidSetting` that names the key."""
    known = settings_of(kind)
    name = kind.SECTION  # type: ignore[attr-defined]
    if not isinstance(section, dict):
        raise InvalidSetting(name, f"is a section: write [{name}] and the keys below it")
    for key in section:
        if key not in known:
            raise InvalidSetting(f"{name}.{key}", f"is unknown; there are {', '.join(sorted(known))}")
    return kind(**{**section, **variables_of(known.values(), variables)})


def variables_of(settings: Iterable[Setting], variables: Mapping[str, str]) -> dict[str, Value]:
    """Key to value, for the settings of one section that the environment gives.

    An empty variable is none. Raises `InvalidSetting` for one that begins as theirs do and is none of them.
    """
    known = {setting.variable: setting for setting in settings}
    prefixes = tuple({f"{_PREFIX}{setting.section}_".upper() for setting in known.values()})
    found = {}
    for variable, text in sorted(variables.items()):
        if variable.startswith(prefixes) and text:
            if variable not in known:
                raise InvalidSetting(variable, f"is unknown; there are {', '.join(sorted(known))}")
            found[known[variable].key] = known[variable].parse(text)
    return found


def toml_lines(kind: type[Any]) -> str:
    """The section as a new seglog.toml has it: every key with its default, commented out."""
    settings = settings_of(kind).values()
    pairs = [f"# {setting.key} = {json.dumps(setting.default)}" for setting in settings]
    width = max(map(len, pairs))
    notes = [f"{setting.unit}: {setting.meaning}" if setting.unit else setting.meaning for setting in settings]
    lines = [f"{pair:<{width}}  # {note}" for pair, note in zip(pairs, notes, strict=True)]
    return "\n".join([f"[{kind.SECTION}]", *lines, ""])
