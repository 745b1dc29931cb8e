"""Settings of a data directory (the section [log] of seglog.toml) and of a topic.

The fields of `LogSettings` and docs/configuration.md list the keys, with their defaults, units and ranges.

The retention of a topic (`TopicConfig`):

    key           default   meaning
    ttl_ms        none      an older record is not shown; a segment is evicted when its newest record is older
    cap_records   none      the number of records that retention keeps on this disk, at least
    cap_bytes     none      the bytes of frames that retention keeps on this disk, at least
    discard       old       at a cap: "old" evicts the oldest whole segments; "reject" refuses the append

Which topic a daemon serves first (offload.daemon.scheduler):

    key             default   meaning
    priority        0         a whole number from -250 to 1,000; a higher one comes first
    auto_priority   false     recent consumption adds up to 250 to the priority

By default, age alone seals no segment. Topics with few records would otherwise get many small segments. A topic with a
ttl has its active segment sealed by the ttl.

The other sections belong to the packages that read them (seglog.files.directory).

**A setting** is declared in one place, at its field: key, default, unit, range and meaning.

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
from dataclasses import field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from seglog.base.arguments import WHOLE_MAX, kind_of, taken
from seglog.base.dataclasses import dataclass
from seglog.errors import InvalidSetting
from seglog.values.canonical import record

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


SETTINGS_FILE: Final = "seglog.toml"
NO_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({})
MIB: Final = 1024 * 1024

DURABILITIES: Final = {
    "fsync": "acked once it is on the disk: survives a power cut",
    "disk": "acked once the system has it: survives the process; a power cut takes at most the records of the last "
    "`disk_sync_interval_ms`",
    "memory": "acked once the system has it, and never synced on its own: survives the process, no more",
    "ephemeral": "acked once it is in memory, and never written: gone when the process ends",
}

DISCARDS: Final = ("old", "reject")
PRIORITY_LEAST: Final = -250
PRIORITY_MOST: Final = 1000
_NO_ATTRIBUTES: Final[dict[str, str]] = {}
_ATTRIBUTES: Final = kind_of(Mapping[str, str])


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings of a data directory. Raise `InvalidSetting` for a value out of its range."""

    SECTION: ClassVar = "log"

    segment_max_events: int = number(10_000, "records", 1, 10_000_000, "a segment with this many is sealed")
    segment_max_bytes: int = number(
        64 * MIB, "bytes", 1, 1024 * MIB, "a segment is sealed if the next record would make it larger"
    )
    max_store_overflow: int = number(
        0, "bytes", 0, 1024 * MIB, "how far a record may take its segment beyond segment_max_bytes"
    )
    wal_file_bytes: int = number(
        64 * MIB, "bytes", 4096, 1024 * MIB, "size of a file of the write-ahead log, reserved in advance"
    )
    wal_max_files: int = number(
        4, "files", 1, 1024, "maximum of full WAL files that wait for a checkpoint; at this number, appends wait"
    )
    disk_sync_interval_ms: int = number(
        100, "ms", 1, 3_600_000, "delay until the log syncs records that were acked at disk"
    )
    wal_shards: int = number(1, "shards", 1, 64, "parts of the write-ahead log, each with its own files and syncs")
    max_record_bytes: int = number(16 * MIB, "bytes", 1, 512 * MIB, "maximum size of a record")
    queue_max_bytes: int = number(
        64 * MIB,
        "bytes",
        1,
        1024 * MIB,
        "maximum size of waiting appends in an asyncio program; beyond it, append waits",
    )
    ephemeral_max_bytes: int = number(
        64 * MIB,
        "bytes",
        4096,
        1024 * 1024 * MIB,
        "maximum size of ephemeral records of all topics; beyond it, `discard` decides",
    )
    segment_max_age_ms: int = number(
        0, "ms", 0, 31_536_000_000, "a segment is sealed if its oldest record is older; 0: never"
    )
    cold_dir: str = path("a directory on a slower disk, for older sealed segments of this log alone; empty: none")
    hot_retain_segments: int = number(
        4, "segments", 0, 10_000_000, "newest sealed segments of a topic that stay out of cold_dir"
    )
    hot_retain_bytes: int = number(
        0, "bytes", 0, 1024 * 1024 * 1024 * MIB, "maximum size of these segments; 0: no bound"
    )

    producer_keep_s: int = number(
        604_800, "s", 1, 31_536_000_000, "a topic forgets a producer that has appended nothing for this long"
    )
    idempotency_keep_s: int = number(
        86_400, "s", 1, 31_536_000_000, "a topic keeps the key of an append for this long, and then forgets it"
    )

    disk_reject_bytes: int = number(
        512 * MIB, "bytes", 0, 1024**4 * MIB, "if less disk is free, refuse appends, so that upkeep still has room"
    )

    append_when_fenced: bool = switch(
        False, "a topic that another directory has taken over goes on taking appends, which stay in this directory"
    )

    reclaim_dead_percent: int = number(
        50, "percent", 1, 100, "deleted share of a sealed segment at which the log rewrites it"
    )
    reclaim_bytes_per_s: int = number(
        32 * MIB, "bytes a second", 0, 1024 * MIB * 1024, "rate of these rewrites in the background; 0: never"
    )

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The configuration of one topic. `attributes` are opaque to the log: upper layers keep their own values there.

    With `keep_history`, a delete stays listed until the archive has recorded and settled it. Retention evicts nothing:
    a segment that is due stays until the archive has it and releases it. Such a topic takes no ephemeral records,
    because they are never written.

    For the caps, the ttl and the priority, see the tables above.
    """

    durability: str = "fsync"
    keep_history: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    ttl_ms: int | None = None
    cap_records: int | None = None
    cap_bytes: int | None = None
    discard: str = "old"
    priority: int = 0
    auto_priority: bool = False

    def __post_init__(self) -> None:
        check_durability(self.durability)
        if type(self.keep_history) is not bool:
            raise InvalidSetting("keep_history", f"{self.keep_history!r} is not True or False")
        if self.attributes != _NO_ATTRIBUTES:
            taken("attributes", self.attributes, _ATTRIBUTES)
        check_history(self.durability, keep_history=self.keep_history)
        for key in ("ttl_ms", "cap_records", "cap_bytes"):
            value = getattr(self, key)
            if value is not None and (type(value) is not int or not 1 <= value <= WHOLE_MAX):
                raise InvalidSetting(key, f"{value!r} is not a whole number from 1 to {WHOLE_MAX}, or none")
        if self.discard not in DISCARDS:
            raise InvalidSetting("discard", f"{self.discard!r} is none of {', '.join(DISCARDS)}")
        if type(self.priority) is not int or not PRIORITY_LEAST <= self.priority <= PRIORITY_MOST:
            allowed = f"a whole number from {PRIORITY_LEAST} to {PRIORITY_MOST}"
            raise InvalidSetting("priority", f"{self.priority!r} is not {allowed}")
        if type(self.auto_priority) is not bool:
            raise InvalidSetting("auto_priority", f"{self.auto_priority!r} is not True or False")

    @property
    def is_capped(self) -> bool:
        return self.cap_records is not None or self.cap_bytes is not None

    @property
    def has_limits(self) -> bool:
        """Return whether the topic has a cap or a ttl."""
        return self.ttl_ms is not None or self.cap_records is not None or self.cap_bytes is not None

    def to_json(self) -> dict[str, Any]:
        """Return the config as JSON. Without a priority it is as older releases wrote it, and as they read it."""
        priority = {"priority": self.priority} if self.priority else {}
        auto = {"auto_priority": True} if self.auto_priority else {}
        return {
            **priority,
            **auto,
            "attributes": dict(self.attributes),
            "cap_bytes": self.cap_bytes,
            "cap_records": self.cap_records,
            "discard": self.discard,
            "durability": self.durability,
            "keep_history": self.keep_history,
            "ttl_ms": self.ttl_ms,
        }

    @classmethod
    def from_json(cls, value: object) -> TopicConfig:
        """Return the config that `to_json` wrote, in this release or an older one.

        Raise `KeyError`, `ValueError` or `InvalidSetting` for any other value.
        """
        fields = record(value)
        return cls(
            fields["durability"],
            fields["keep_history"],
            dict(record(fields["attributes"])),
            fields["ttl_ms"],
            fields["cap_records"],
            fields["cap_bytes"],
            fields["discard"],
            fields.get("priority", 0),
            fields.get("auto_priority", False),
        )


def check_durability(name: str) -> str:
    """Return `name` if it is a durability. Raise `InvalidSetting` if not."""
    if not isinstance(name, str) or name not in DURABILITIES:
        raise InvalidSetting("durability", f"{name!r} is none of {', '.join(DURABILITIES)}")
    return name


def check_history(durability: str, *, keep_history: bool) -> None:
    """Raise `InvalidSetting` for `keep_history` with ephemeral records, which are never written."""
    if keep_history and durability == "ephemeral":
        reason = "a topic that keeps its history takes no ephemeral records: use memory, or another topic for them"
        raise InvalidSetting("durability", reason)
