"""Settings of a data directory (the section [log] of seglog.toml) and of a topic.

The fields of `LogSettings` and docs/configuration.md list the keys, with their defaults, units and ranges.

The retention of a topic (`TopicConfig`):

    key           default   meaning
    ttl_ms        none      an older record is not shown; a segment is evicted when its newest record is older
    cap_records   none      the number of records that retention keeps on this disk, at least
    cap_bytes     none      the bytes of frames that retention keeps on this disk, at least
    discard       old       at a cap: "old" evicts the oldest whole segments; "reject" refuses the append

By default, age alone seals no segment. Topics with few records would otherwise get many small segments. A topic with a
ttl has its active segment sealed by the ttl.

The other sections belong to the packages that read them (seglog.files.settings_file).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final

from seglog.base.arguments import WHOLE_MAX, kind_of, taken
from seglog.errors import InvalidSetting
from seglog.values.canonical import record
from seglog.values.setting import check_settings, number, path, switch

__all__ = [
    "DISCARDS",
    "DURABILITIES",
    "NO_VARIABLES",
    "SETTINGS_FILE",
    "LogSettings",
    "TopicConfig",
    "check_durability",
    "check_history",
]

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

    For the caps and the ttl, see the table above.
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

    @property
    def is_capped(self) -> bool:
        return self.cap_records is not None or self.cap_bytes is not None

    @property
    def has_limits(self) -> bool:
        """Return whether the topic has a cap or a ttl."""
        return self.ttl_ms is not None or self.cap_records is not None or self.cap_bytes is not None

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
    def from_json(cls, value: object) -> TopicConfig:
        """Return the config that `to_json` wrote.

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
