"""Settings of a data directory (the section [log] of seglog.toml) and of a topic.

    key                  default    unit     range
    segment_max_events   10000      records  1 to 10000000
    segment_max_bytes    67108864   bytes    1 to 1073741824
    wal_file_bytes       67108864   bytes    4096 to 1073741824
    max_record_bytes     16777216   bytes    1 to 536870912
    segment_max_age_ms   0          ms       0 to 31536000000

A segment_max_age_ms of 0 is no age. The retention of a topic (`TopicConfig`):

    key           default   meaning
    ttl_ms        none      a segment goes when its newest record is older
    cap_records   none      records that are kept on this disk, at least
    cap_bytes     none      bytes of frames that are kept on this disk, at least
    discard       old       at a cap: "old" evicts the oldest whole segments; "reject" refuses the append

The other sections belong to whoever reads them: `read_sections` hands all of them out, and checks none.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from seglog.errors import InvalidSetting
from seglog.files import OsFiles, replace_atomically

__all__ = [
    "DISCARDS",
    "DURABILITIES",
    "SETTINGS_FILE",
    "LogSettings",
    "TopicConfig",
    "check_durability",
    "default_toml",
    "load_settings",
    "read_sections",
    "settings_from",
    "write_default",
]

SETTINGS_FILE: Final = "seglog.toml"
MIB: Final = 1024 * 1024

DURABILITIES: Final = {
    "fsync": "acked once it is on the disk: survives a power cut",
    "disk": "acked once the system has it: survives the process, not a power cut",
    "memory": "as disk, with no promise at all",
}

_RANGES: Final = {
    "segment_max_events": (1, 10_000_000),
    "segment_max_bytes": (1, 1024 * MIB),
    "wal_file_bytes": (4096, 1024 * MIB),
    "max_record_bytes": (1, 512 * MIB),
    "segment_max_age_ms": (0, 31_536_000_000),
}
DISCARDS: Final = ("old", "reject")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`InvalidSetting` for a value out of its range (see the table above)."""

    segment_max_events: int = 10_000
    segment_max_bytes: int = 64 * MIB
    wal_file_bytes: int = 64 * MIB
    max_record_bytes: int = 16 * MIB
    segment_max_age_ms: int = 0

    def __post_init__(self) -> None:
        for key, (low, high) in _RANGES.items():
            value = getattr(self, key)
            if type(value) is not int or not low <= value <= high:
                raise InvalidSetting(f"log.{key}", f"{value!r} is not a whole number from {low} to {high}")


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Of one topic. `attributes` are opaque to the log: upper layers keep theirs there.

    With `keep_history`, deletes stay listed until they are settled, so that the archive can tell of them, and nothing
    is evicted: what retention wants gone waits until the archive has it. Caps and ttl: see the table above.
    """

    durability: str = "fsync"
    keep_history: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    ttl_ms: int | None = None
    cap_records: int | None = None
    cap_bytes: int | None = None
    discard: str = "old"

    def __post_init__(self) -> None:
        check_durability(self.durability)
        for key in ("ttl_ms", "cap_records", "cap_bytes"):
            value = getattr(self, key)
            if value is not None and (type(value) is not int or value < 1):
                raise InvalidSetting(key, f"{value!r} is not a whole number from 1 on, or none")
        if self.discard not in DISCARDS:
            raise InvalidSetting("discard", f"{self.discard!r} is none of {', '.join(DISCARDS)}")

    @property
    def is_capped(self) -> bool:
        return self.cap_records is not None or self.cap_bytes is not None

    def to_json(self) -> dict[str, Any]:
        return {
            "attributes": dict(self.attributes),
            "cap_bytes": self.cap_bytes,
            "cap_records": self.cap_records,
            "discard": self.discard,
            "durability": self.durability,
            "keep_history": self.keep_history,
            "ttl_ms": self.ttl_ms,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TopicConfig:
        """Raises `KeyError`, `TypeError` or `InvalidSetting` for what `to_json` does not write."""
        return cls(
            value["durability"],
            value["keep_history"],
            dict(value["attributes"]),
            value["ttl_ms"],
            value["cap_records"],
            value["cap_bytes"],
            value["discard"],
        )


def check_durability(name: str) -> str:
    """`name`, or `InvalidSetting`."""
    if name == "ephemeral":
        raise InvalidSetting("durability", "ephemeral is not there yet; memory is the nearest")
    if name not in DURABILITIES:
        raise InvalidSetting("durability", f"{name!r} is none of {', '.join(DURABILITIES)}")
    return name


def read_sections(path: Path) -> dict[str, Any]:
    """The sections of the TOML file at `path`; none if there is no file. Raises `InvalidSetting` if it is not TOML."""
    try:
        text = path.read_bytes().decode()
        return tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSetting(path.name, f"the file is not TOML: {error}") from error


def settings_from(section: object) -> LogSettings:
    """Of the section [log]. Raises `InvalidSetting` that names the key."""
    if not isinstance(section, dict):
        raise InvalidSetting("log", "is a section: write [log] and the keys below it")
    known = {item.name for item in fields(LogSettings)}
    for key in section:
        if key not in known:
            raise InvalidSetting(f"log.{key}", f"is unknown; there are {', '.join(sorted(known))}")
    return LogSettings(**section)


def load_settings(path: Path) -> LogSettings:
    """Of the seglog.toml at `path`; the defaults if there is none."""
    return settings_from(read_sections(path).get("log", {}))


def default_toml(remote: str | None = None) -> str:
    """The body of a new seglog.toml. `remote` is the URL of the archive, if it is known already."""
    log = LogSettings()
    url = '# url = "s3://bucket/prefix"' if remote is None else f"url = {json.dumps(remote, ensure_ascii=False)}"
    return f"""\
# Settings of this seglog data directory. What is commented out shows the default.

[log]
# segment_max_events = {log.segment_max_events}      # a segment is sealed after this many records
# segment_max_bytes = {log.segment_max_bytes}    # or after this many bytes
# wal_file_bytes = {log.wal_file_bytes}       # of one file of the write-ahead log; reserved in advance
# max_record_bytes = {log.max_record_bytes}     # a larger record is refused
# segment_max_age_ms = {log.segment_max_age_ms}          # a segment is sealed when its oldest record is older; 0: never

[remote]
# Where the history goes: s3://bucket/prefix or file:///path.
{url}
"""


def write_default(directory: Path, remote: str | None = None) -> None:
    """A new seglog.toml in `directory`, durable on return."""
    replace_atomically(OsFiles(), directory / SETTINGS_FILE, default_toml(remote).encode())
