"""Settings of cold reads: the `[cold]` section of seglog.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from seglog.files.settings_file import read_sections
from seglog.values.config import NO_VARIABLES
from seglog.values.setting import check_settings, from_section, number, path

__all__ = ["ColdSettings", "load_cold_settings"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ColdSettings:
    """The `[cold]` section. `place_of_cache` returns the path of a data directory's cache."""

    SECTION: ClassVar = "cold"

    index_cache_bytes: int = number(64 * _MIB, "bytes", 0, None, "of index objects in memory, for all readers")
    cache_bytes: int = number(1024 * _MIB, "bytes", 0, None, "of chunks on the disk, for all readers; 0: none")
    cache_dir: str = path("where those chunks are, seen from the data directory; empty: in `cache` there")
    read_ahead_bytes: int = number(
        128 * _MIB, "bytes", 0, None, "that one sequential reader has asked for and not yet shown; 0: a chunk at a time"
    )
    read_ahead_total_bytes: int = number(256 * _MIB, "bytes", 0, None, "the same, of all readers together")
    window_bytes: int = number(8 * _MIB, "bytes", 1 * _MIB, 1024 * _MIB, "of the largest GET of a sequential reader")
    connections: int = number(16, "", 1, 256, "GETs at a time, of all readers")
    get_timeout_s: int = number(60, "seconds", 1, 3600, "of one GET, from connecting to its last byte")
    get_attempts: int = number(4, "", 1, 20, "of a GET that fails or is not answered, further and further apart")

    def place_of_cache(self, directory: Path) -> Path:
        return directory / (self.cache_dir or "cache")

    def __post_init__(self) -> None:
        check_settings(self)


def load_cold_settings(path: Path, variables: Mapping[str, str] = NO_VARIABLES) -> ColdSettings:
    """Return the settings in the seglog.toml at `path`. `variables` is the environment. Raises `InvalidSetting`."""
    return from_section(ColdSettings, read_sections(path).get(ColdSettings.SECTION, {}), variables)
