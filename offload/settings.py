"""Settings of the archive: the `[remote]` and `[offload]` sections of seglog.toml, and the table of all settings.

The section `[cold]` is in offload.cold_settings.

What keys there are, with their defaults, units and ranges, the fields of `OffloadSettings` say, and
docs/configuration.md. A key that is not listed is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from catalog.commit import Codec
from offload.cold_settings import ColdSettings
from seglog.config import NO_VARIABLES, LogSettings, default_toml, read_sections
from seglog.errors import InvalidSetting
from seglog.setting import Setting, check_settings, choice, from_section, number, settings_of, toml_lines

__all__ = [
    "CODEC_NAMES",
    "MIN_BLOCK_SIZE",
    "SETTINGS",
    "OffloadSettings",
    "codec_named",
    "default_file",
    "load_archive_settings",
]

MIN_BLOCK_SIZE = 5 * 1024 * 1024  # S3's least part size
_MAX_BLOCK_SIZE = 2**31 - 1  # Pulsar's reader keeps it in a Java int

CODEC_NAMES: Mapping[str, Codec] = {"none": Codec.NONE, "zstd": Codec.ZSTD}


def codec_named(name: str) -> Codec:
    """Raises `InvalidSetting`."""
    if name not in CODEC_NAMES:
        raise InvalidSetting("codec", f"{name!r} is none of {', '.join(CODEC_NAMES)}")
    return CODEC_NAMES[name]


@dataclass(frozen=True, slots=True)
class OffloadSettings:
    """`concurrency` parts are in flight at a time, so an upload holds about `block_size * concurrency` bytes."""

    SECTION: ClassVar = "offload"

    block_size: int = number(
        64 * 1024 * 1024,
        "bytes",
        MIN_BLOCK_SIZE,
        _MAX_BLOCK_SIZE,
        "of a block of a data object, which is one part of its multipart upload",
    )
    codec: str = choice("zstd", CODEC_NAMES, "zstd is small, none is Apache Pulsar's own format")
    zstd_level: int = number(3, "", 1, 19, "a higher one is smaller and slower")
    concurrency: int = number(4, "parts", 1, 64, "in flight at a time; an upload holds so many blocks in memory")
    max_object_bytes: int = number(1024 * 1024 * 1024, "bytes", 1, None, "adjacent segments are merged up to this")
    deletion_lag_s: int = number(4 * 3600, "seconds", 0, None, "how long a hot copy stays after its offload")

    def __post_init__(self) -> None:
        check_settings(self)


SETTINGS: tuple[Setting, ...] = tuple(
    setting for kind in (LogSettings, OffloadSettings, ColdSettings) for setting in settings_of(kind).values()
)
"""Those of all sections but [remote], whose only key is the URL."""

_SECTIONS = (LogSettings.SECTION, "remote", OffloadSettings.SECTION, ColdSettings.SECTION)


def load_archive_settings(
    path: Path, variables: Mapping[str, str] = NO_VARIABLES
) -> tuple[str | None, OffloadSettings]:
    """The remote's URL, if there is one, and the rest, of the seglog.toml at `path`. `variables` is the environment.

    Raises `InvalidSetting`.
    """
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
    return remote.get("url"), from_section(OffloadSettings, sections.get(OffloadSettings.SECTION, {}), variables)


def default_file(remote: str | None = None) -> str:
    """The seglog.toml that `seglog init` writes: every key with its default, commented out."""
    return f"{default_toml(remote)}\n{toml_lines(OffloadSettings)}\n{toml_lines(ColdSettings)}"
