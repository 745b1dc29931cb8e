"""The declaration of a setting, in one place, at its field: key, default, unit, range and meaning.

    @dataclass(frozen=True, slots=True)
    class LogSettings:
        wal_file_bytes: int = number(64 * MIB, "bytes", 4096, 1024 * MIB, "size of a file of the write-ahead log")

Checks and their errors, the seglog.toml of `seglog init`, the environment of the command and docs/configuration.md read
the declaration. The class names its section as `SECTION`. The name of a setting is `section.key`. Its environment
variable is `SEGLOG_SECTION_KEY`.

This module uses no settings library, because its import would delay every command.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias, TypeVar

from seglog.errors import InvalidSetting

__all__ = [
    "MOVED",
    "Setting",
    "check_settings",
    "choice",
    "from_section",
    "moved",
    "number",
    "path",
    "settings_of",
    "switch",
    "text",
    "toml_lines",
    "variables_of",
]

MOVED: Mapping[str, str] = {"serve.disk_reject_bytes": "log.disk_reject_bytes"}
"""The names of settings that older releases had in another section, and their names of today. Both are read."""

_PREFIX = "SEGLOG_"
_FIELD = "setting"
Value: TypeAlias = int | str
_Settings = TypeVar("_Settings")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a section.

    `choices` are the allowed texts. `low` and `high` bound a whole number; a `high` of None is no bound. `word`, such
    as "never", may stand in place of the number. `is_text` allows any text. `is_path` allows the path of a file or
    directory. `is_switch` allows true and false.
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
    is_switch: bool = False

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"

    @property
    def variable(self) -> str:
        return f"{_PREFIX}{self.section}_{self.key}".upper()

    @property
    def default_text(self) -> str:
        """Return the default as the environment and seglog.toml have it, without quotes."""
        return str(self.default).lower() if self.is_switch else str(self.default)

    @property
    def allowed(self) -> str:
        """Return the allowed values in words, for errors and the docs."""
        if self.is_switch:
            return "true or false"
        if self.is_path:
            return "a path"
        if self.choices:
            return " or ".join((", ".join(self.choices[:-1]), self.choices[-1]))
        if self.is_text:
            return "text"
        numbers = f"{self.low} and more" if self.high is None else f"{self.low} to {self.high}"
        return f"{numbers}, or {self.word}" if self.word else numbers

    def check(self, value: object) -> None:
        """Raise `InvalidSetting` if the value is not allowed."""
        if self.is_switch:
            if type(value) is not bool:
                raise InvalidSetting(self.name, f"{value!r} is not {self.allowed}")
        elif self.is_path:
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
            quoted = (
                "; write the number without quotes"
                if type(value) is str and value.isascii() and value.isdigit()
                else ""
            )
            raise InvalidSetting(self.name, f"{value!r} is not a whole number, {self.allowed}{quoted}")

    def parse(self, text: str) -> Value:
        """Return the value that an environment variable gives. Raise `InvalidSetting`, which names the variable."""
        is_number = not (self.choices or self.is_text or self.is_path or self.is_switch)
        value: Value = int(text) if is_number and text.isascii() and text.isdigit() else text
        if self.is_switch:
            value = {"true": True, "false": False}.get(text, text)
        try:
            self.check(value)
        except InvalidSetting as error:
            raise InvalidSetting(self.name, f"{error.reason} (from {self.variable})") from error
        return value


def number(default: Value, unit: str, low: int, high: int | None, meaning: str, *, word: str | None = None) -> Any:
    """Declare a dataclass field whose value is a whole number, or `word`."""
    said = {"unit": unit, "low": low, "high": high, "meaning": meaning, "word": word}
    return field(default=default, metadata={_FIELD: said})


def text(default: str, meaning: str) -> Any:
    """Declare a dataclass field whose value is any text."""
    return field(default=default, metadata={_FIELD: {"unit": "", "meaning": meaning, "is_text": True}})


def choice(default: str, choices: Iterable[str], meaning: str) -> Any:
    """Declare a dataclass field whose value is one of `choices`."""
    return field(default=default, metadata={_FIELD: {"unit": "", "choices": tuple(choices), "meaning": meaning}})


def path(meaning: str) -> Any:
    """Declare a dataclass field whose value is a path as a text. The default is an empty text, which means no path."""
    return field(default="", metadata={_FIELD: {"unit": "", "meaning": meaning, "is_path": True}})


def switch(default: bool, meaning: str) -> Any:
    """Declare a dataclass field whose value is True or False."""
    return field(default=default, metadata={_FIELD: {"unit": "", "meaning": meaning, "is_switch": True}})


def settings_of(kind: type[Any]) -> dict[str, Setting]:
    """Return the settings of a class by key, in the order of its fields."""
    found = {}
    for item in fields(kind):
        default: Any = item.default
        found[item.name] = Setting(kind.SECTION, item.name, default, **item.metadata[_FIELD])
    return found


def check_settings(values: Any) -> None:
    """Check every value of a settings object, for `__post_init__`. Raise `InvalidSetting`."""
    for key, setting in settings_of(type(values)).items():
        setting.check(getattr(values, key))


def from_section(kind: type[_Settings], section: object, variables: Mapping[str, str]) -> _Settings:
    """Return the settings in a section of seglog.toml and in the environment, which wins.

    Raise `InvalidSetting`, which names the key.
    """
    known = settings_of(kind)
    name = kind.SECTION  # type: ignore[attr-defined]
    if not isinstance(section, dict):
        raise InvalidSetting(name, f"is a section: write [{name}] and the keys below it")
    for key in section:
        if key not in known:
            raise InvalidSetting(f"{name}.{key}", f"is unknown; there are {', '.join(sorted(known))}")
    return kind(**{**section, **variables_of(known.values(), variables)})


def variables_of(settings: Iterable[Setting], variables: Mapping[str, str]) -> dict[str, Value]:
    """Return key to value, for the settings of one section that the environment gives.

    An empty variable counts as not set. Raise `InvalidSetting` for a variable with the section's prefix that names no
    setting of it.
    """
    known = {setting.variable: setting for setting in settings}
    variables = _moved_variables(variables)
    prefixes = tuple({f"{_PREFIX}{setting.section}_".upper() for setting in known.values()})
    found = {}
    for variable, text in sorted(variables.items()):
        if variable.startswith(prefixes) and text:
            if variable not in known:
                raise InvalidSetting(variable, f"is unknown; there are {', '.join(sorted(known))}")
            found[known[variable].key] = known[variable].parse(text)
    return found


def moved(sections: dict[str, Any]) -> dict[str, Any]:
    """Return the sections of seglog.toml with each moved key in its section of today. A key that is there too wins."""
    for before, now in MOVED.items():
        (section, key), (new_section, new_key) = before.split("."), now.split(".")
        old, new = sections.get(section), sections.get(new_section, {})
        if isinstance(old, dict) and key in old and isinstance(new, dict):
            left = {name: value for name, value in old.items() if name != key}
            sections = {**sections, section: left, new_section: {new_key: old[key], **new}}
    return sections


def _moved_variables(variables: Mapping[str, str]) -> Mapping[str, str]:
    for before, now in MOVED.items():
        old, new = (f"{_PREFIX}{name.replace('.', '_')}".upper() for name in (before, now))
        if variables.get(old):
            variables = {new: variables[old], **{name: text for name, text in variables.items() if name != old}}
    return variables


def toml_lines(kind: type[Any], values: Any = None) -> str:
    """Return the section for a new seglog.toml: every key with its default, commented out.

    If `values` are given, a key that has another value there is not commented out.
    """
    settings = settings_of(kind).values()
    given = {each.key: each.default if values is None else getattr(values, each.key) for each in settings}
    pairs = [
        f"{'# ' * (given[each.key] == each.default)}{each.key} = {json.dumps(given[each.key], ensure_ascii=False)}"
        for each in settings
    ]
    width = max(map(len, pairs))
    notes = [f"{setting.unit}: {setting.meaning}" if setting.unit else setting.meaning for setting in settings]
    lines = [f"{pair:<{width}}  # {note}" for pair, note in zip(pairs, notes, strict=True)]
    return "\n".join([f"[{kind.SECTION}]", *lines, ""])
