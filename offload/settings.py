"""Settings of the archive: the `[remote]` and `[offload]` sections of seglog.toml, with their defaults.

Sizes in bytes, times in seconds. A key that is not listed here is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from catalog.commit import Codec
from seglog.config import read_sections
from seglog.errors import InvalidSetting

__all__ = [
    "CODEC_NAMES",
    "MIN_BLOCK_SIZE",
    "OffloadSettings",
    "codec_named",
    "default_section",
    "load_archive_settings",
]

MIN_BLOCK_SIZE = 5 * 1024 * 1024  # S3's least part size
_MAX_BLOCK_SIZE = 2**31 - 1  # Pulsar's reader keeps it in a Java int

_SECTIONS = ("log", "remote", "offload")

CODEC_NAMES: Mapping[str, Codec] = {"none": Codec.NONE, "zstd": Codec.ZSTD}


def codec_named(name: str) -> Codec:
    """Raises `InvalidSetting`."""
    if name not in CODEC_NAMES:
        raise InvalidSetting("codec", f"{name!r} is none of {', '.join(CODEC_NAMES)}")
    return CODEC_NAMES[name]


@dataclass(frozen=True, slots=True)
class OffloadSettings:
    """`concurrency` parts are in flight at a time, so an upload holds about `block_size * concurrency` bytes."""

    block_size: int = 64 * 1024 * 1024
    codec: str = "zstd"
    zstd_level: int = 3
    concurrency: int = 4
    max_object_bytes: int = 1024 * 1024 * 1024
    deletion_lag_s: int = 4 * 3600

    def __post_init__(self) -> None:
        if not MIN_BLOCK_SIZE <= self.block_size <= _MAX_BLOCK_SIZE:
            raise InvalidSetting(
                "offload.block_size", f"{self.block_size} is outside {MIN_BLOCK_SIZE} to {_MAX_BLOCK_SIZE}"
            )
        codec_named(self.codec)
        if not 1 <= self.zstd_level <= 19:
            raise InvalidSetting("offload.zstd_level", f"{self.zstd_level} is outside 1 to 19")
        if not 1 <= self.concurrency <= 64:
            raise InvalidSetting("offload.concurrency", f"{self.concurrency} is outside 1 to 64")
        if self.max_object_bytes < 1:
            raise InvalidSetting("offload.max_object_bytes", "must be positive")
        if self.deletion_lag_s < 0:
            raise InvalidSetting("offload.deletion_lag_s", "must not be negative")

    @classmethod
    def from_section(cls, section: Mapping[str, Any]) -> OffloadSettings:
        """Of the `[offload]` table of seglog.toml. Raises `InvalidSetting` for an unknown key or a wrong type."""
        known = {field.name: type(field.default) for field in fields(cls)}
        for key, value in section.items():
            if key not in known:
                raise InvalidSetting(f"offload.{key}", f"unknown; the keys are {', '.join(sorted(known))}")
            if type(value) is not known[key]:
                raise InvalidSetting(f"offload.{key}", f"must be {known[key].__name__}, not {value!r}")
        return cls(**section)


def load_archive_settings(path: Path) -> tuple[str | None, OffloadSettings]:
    """The remote's URL, if there is one, and the rest, of the seglog.toml at `path`. Raises `InvalidSetting`."""
    sections = read_sections(path)
    for name, section in sections.items():
        if name not in _SECTIONS:
            raise InvalidSetting(name, f"is unknown; the sections are {', '.join(_SECTIONS)}")
        if not isinstance(section, dict):
            raise InvalidSetting(name, f"is a section: write [{name}] and the keys below it")
    remote = sections.get("remote", {})
    for key, value in remote.items():
        if key != "url" or not isinstance(value, str):
            raise InvalidSetting(f"remote.{key}", "the only key is url, a text")
    return remote.get("url"), OffloadSettings.from_section(sections.get("offload", {}))


def default_section() -> str:
    """The `[offload]` section of a new seglog.toml: every key with its default, commented out."""
    default = OffloadSettings()
    return f"""\
[offload]
# block_size = {default.block_size}          # of the data objects' blocks; one part of a multipart upload each
# codec = "{default.codec}"                 # zstd, or none for Apache Pulsar's own format
# zstd_level = {default.zstd_level}
# concurrency = {default.concurrency}                # parts in flight
# max_object_bytes = {default.max_object_bytes}  # adjacent segments are merged up to this
# deletion_lag_s = {default.deletion_lag_s}         # how long a hot copy stays after its offload
"""
