"""Where the calls of a race work: data directories on disks in memory, a remote in memory, all seen by the schedule.

A world begins from a `Beginning`, which is made once: the disk and the local catalog of each directory as they are
between two processes, and the objects of the remote. So each run of a pair has the same one.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import offload
import seglog
from catalog.format.keys import Key
from catalog.objects.memory import MemoryStore
from catalog.objects.wrapped import WrappedStore
from offload import Archive, ColdSettings, OffloadSettings
from offload.settings import CatalogSettings
from seglog import Log, LogSettings
from tests.faults.disk import Image, SimulatedDisk
from tests.faults.files import Effects
from tests.races.turns import Turns
from tests.seams.catalog import databases_from

__all__ = ["BEGINNING", "SETTINGS", "Beginning", "World"]

T = TypeVar("T")

SETTINGS = offload.Settings().with_parts(
    OffloadSettings(codec="none", concurrency=1), ColdSettings(cache_bytes=0, connections=2, get_attempts=1),
    CatalogSettings(checkpoint_commits=64),
)  # fmt: skip
LOG = LogSettings(wal_file_bytes=65_536)  # a file that is made anew is zeros in memory, for each schedule

#: The seed of beginnings. No race has it, so a race draws no id that the beginning has.
BEGINNING = 1 << 40


@dataclass(frozen=True)
class Beginning:
    """What is durable before a race, and when the race begins."""

    disks: Mapping[str, Image] = field(default_factory=dict)
    databases: Mapping[str, bytes] = field(default_factory=dict)
    objects: Mapping[str, tuple[bytes, Mapping[str, str]]] = field(default_factory=dict)
    now_s: float = 0.0


class _Store(WrappedStore):
    """A way to the remote. Other threads may go on before a request, and between its effect and its answer."""

    def __init__(self, inner: MemoryStore, turns: Turns) -> None:
        super().__init__(inner)
        self._turns = turns

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        self._turns.step()
        found = act()
        self._turns.step()
        return found


class _Files(Effects):
    """A disk. Other threads may go on before each call."""

    def __init__(self, inner: SimulatedDisk, turns: Turns) -> None:
        super().__init__(inner)
        self._turns = turns

    def check(self) -> None:
        self._turns.step()

    def datasync(self, fd: int) -> None:
        self.check()  # no power is cut

    def sync_dir(self, path: Path) -> None:
        self.check()


class _Database(sqlite3.Connection):
    """A local catalog. It outlives its process. Other threads may go on before each statement."""

    turns: Turns

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        self.turns.step()
        return super().execute(sql, values)

    def close(self) -> None:
        """Do nothing: the content is as durable as a file."""


class World:
    """The directories and the remote of one run."""

    def __init__(self, turns: Turns, beginning: Beginning, root: Path = Path("/races")) -> None:
        self.turns, self._root = turns, root
        turns.now_s = beginning.now_s
        self.disks = {name: SimulatedDisk(image) for name, image in beginning.disks.items()}
        self.objects = MemoryStore()
        for key, (body, metadata) in beginning.objects.items():
            self.objects.put(Key(key), body, metadata)
        self.store = _Store(self.objects, turns)
        self._databases: dict[str, _Database] = {}
        for name, body in beginning.databases.items():
            self._database(name).deserialize(body)

    def now_ms(self) -> int:
        return self.turns.now_ms()

    def path(self, name: str) -> Path:
        return self._root / name

    def files(self, name: str) -> _Files:
        return _Files(self.disks.setdefault(name, SimulatedDisk()), self.turns)

    @contextlib.contextmanager
    def databases(self) -> Iterator[None]:
        """Let each local catalog be in memory."""
        with databases_from(lambda path: self._database(path.parent.name)):
            yield

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[tuple[Log, Archive]]:
        """Open a data directory with its archive."""
        with (
            seglog.open(self.path(name), settings=LOG, files=self.files(name), clock=self) as log,
            offload.attach(log, store=self.store, clock=self, settings=SETTINGS) as archive,
        ):
            yield log, archive

    def end(self) -> Beginning:
        """Return what is durable now."""
        objects = {
            key: (self.objects.get(Key(key)), self.objects.head(Key(key)).metadata) for key in self.objects.list("")
        }
        now_s = self.turns.now_s + 60.0
        disks = {name: disk.after_kill() for name, disk in self.disks.items()}
        return Beginning(disks, {name: each.serialize() for name, each in self._databases.items()}, objects, now_s)

    def _database(self, name: str) -> _Database:
        if name not in self._databases:
            made = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=_Database)
            made.turns = self.turns
            self._databases[name] = made
        return self._databases[name]
