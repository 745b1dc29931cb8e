"""What a check of a data directory found: values, and the list that the parts of the check write to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from seglog.errors import ColdStoreFailed, FileCorrupt

__all__ = ["Checked", "Damage", "Findings", "Report"]


@dataclass(frozen=True, slots=True)
class Damage:
    """The words of `FileCorrupt`."""

    path: Path
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Checked:
    """A file that was looked at, all of it: `kind` is snapshot, wal or segment; `items` are frames or records.

    `topic` is the name, where the snapshot told it; `bytes` are those of both files of a segment.
    """

    kind: str
    path: Path
    items: int
    bytes: int
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """`notes` are what recovery would put in order without any loss, in words."""

    path: Path
    checked: tuple[Checked, ...]
    damages: tuple[Damage, ...]
    notes: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        return not self.damages


@dataclass(slots=True)
class Findings:
    checked: list[Checked] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def damage(self, path: Path, offset: int, reason: str) -> None:
        self.damages.append(Damage(path, offset, reason))

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """What is raised in here is a damage: of the file it names, or that `path` cannot be read."""
        try:
            yield
        except FileCorrupt as error:
            self.damage(error.path, error.offset, error.reason)
        except FileNotFoundError:
            self.damage(path, 0, "the file is missing")
        except ColdStoreFailed as error:
            self.damage(error.path, 0, f"it cannot be read: {error.cause}")
        except OSError as error:
            self.damage(path, 0, f"it cannot be read: {error.strerror or error}")
