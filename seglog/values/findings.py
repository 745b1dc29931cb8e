"""The findings of a check of a data directory: values, and the list that the parts of the check write to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from seglog.base.dataclasses import dataclass
from seglog.errors import FileCorrupt, WarmStoreFailed


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged place, in the terms of `FileCorrupt`."""

    path: Path
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Checked:
    """A file that the check has read completely.

    `kind` is snapshot, wal or segment. `items` counts frames or records. `topic` is the name, if the snapshot gives it.
    `bytes` counts the bytes of the file, or of both files of a segment.
    """

    kind: str
    path: Path
    items: int
    bytes: int
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a check. `notes` say, in words, what recovery would repair without any loss."""

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
        """List an error of the block as a damage, at the file that the error names, or else at `path`."""
        try:
            yield
        except FileCorrupt as error:
            self.damage(error.path, error.offset, error.reason)
        except FileNotFoundError:
            self.damage(path, 0, "the file is missing")
        except WarmStoreFailed as error:
            self.damage(error.path, 0, f"it cannot be read: {error.cause}")
        except OSError as error:
            self.damage(path, 0, f"it cannot be read: {error.strerror or error}")
