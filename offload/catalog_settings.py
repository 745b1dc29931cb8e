"""Settings of the catalog in the remote: the `[catalog]` section of seglog.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from catalog.checkpointer import CheckpointPolicy
from seglog.files.settings_file import read_sections
from seglog.values.config import NO_VARIABLES
from seglog.values.setting import check_settings, from_section, number

__all__ = ["CatalogSettings", "load_catalog_settings"]

_DAY_S = 24 * 3600
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """The `[catalog]` section. A topic may override `pitr_window_s` with an attribute of the same name."""

    SECTION: ClassVar = "catalog"

    checkpoint_commits: int = number(64, "commits", 1, 1_000_000, "a checkpoint is made after so many")
    checkpoint_bytes: int = number(4 * _MIB, "bytes", 1024, None, "or after so many bytes of commits")
    pitr_window_s: int = number(7 * _DAY_S, "seconds", 0, None, "how far back every state of a topic is kept")
    gc_grace_s: int = number(
        _DAY_S, "seconds", 0, None, "between what GC plans and what it deletes; longer than any upload takes"
    )
    gc_interval_s: int | str = number(6 * 3600, "seconds", 1, None, "between GC runs of the daemon", word="never")
    sync_interval_s: int | str = number(
        5, "seconds", 1, None, "between looks of the daemon for new commits of what it follows", word="never"
    )
    erase_interval_s: int | str = number(
        _DAY_S, "seconds", 1, None, "between rewrites of objects that hold deleted records, by the daemon", word="never"
    )
    pin_ttl_s: int = number(900, "seconds", 1, 7 * _DAY_S, "a lease of a reader ends so long after its last renewal")

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def checkpoint_policy(self) -> CheckpointPolicy:
        return CheckpointPolicy(self.checkpoint_commits, self.checkpoint_bytes)


def load_catalog_settings(path: Path, variables: Mapping[str, str] = NO_VARIABLES) -> CatalogSettings:
    """Return the settings in the seglog.toml at `path`. `variables` is the environment. Raises `InvalidSetting`."""
    return from_section(CatalogSettings, read_sections(path).get(CatalogSettings.SECTION, {}), variables)
