"""The paths in a data directory. No other module makes them.

    LOCK                                    held while a process uses the directory; its text names that process
    seglog.toml                             settings
    meta/snapshot.<16 digits>.json          the newest two
    meta/log-id                             the log's own id, once it needs one (seglog.tiers.warm_directory)
    meta/ballast                            zeros: space that upkeep gives up on a full disk (seglog.engine.engine)
    meta.removed/                           meta/ of a log that is being removed
    wal/CURRENT                             name of the active WAL file; present once the directory is complete
    wal/wal-<16 digits>.log                 number = ordinal of its first frame among all frames ever written
    wal/next.log                            zeros: space for the next WAL file
    wal/shard-<2 digits>/                   the same three files of one shard, if there are several shards
    topics/<8 hex>/seg-<16 digits>.data     directory = topic id; number = seq of the first record
    topics/<8 hex>/seg-<16 digits>.idx
    topics/<8 hex>/seg-<16 digits>.tags     of a sealed segment with tags; derivable
    topics/<8 hex>/seg-<16 digits>.data.new, .idx.new   both files without deleted records' bytes, before they replace
                                            the old ones
    topics/<8 hex>.deleted/                 of a deleted topic whose files are being removed

Numbers are zero-padded, so names sort as the numbers do. No I/O.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from seglog.base.dataclasses import dataclass
from seglog.base.lazy import pattern
from seglog.values.config import SETTINGS_FILE

#: Kinds of the files that a segment may have.
SEGMENT_PARTS = ("data", "idx", "tags", "data.new", "idx.new")

_NUMBERED = {
    "snapshot": pattern(r"snapshot\.([0-9]{16})\.json"),
    "wal": pattern(r"wal-([0-9]{16})\.log"),
    "data": pattern(r"seg-([0-9]{16})\.data"),
    "idx": pattern(r"seg-([0-9]{16})\.idx"),
    "tags": pattern(r"seg-([0-9]{16})\.tags"),
    "data.new": pattern(r"seg-([0-9]{16})\.data\.new"),
    "idx.new": pattern(r"seg-([0-9]{16})\.idx\.new"),
}
_SHARD_DIR = pattern(r"shard-[0-9]{2}")
_TOPIC_DIR = pattern(r"[0-9A-F]{8}")
_DELETED_DIR = pattern(r"[0-9A-F]{8}\.deleted")


def number_in(kind: str, name: str) -> int | None:
    """Return the number in a file name of that kind (snapshot, wal, a segment's part, topic); None for other names."""
    if kind == "topic":
        return int(name, 16) if _TOPIC_DIR.fullmatch(name) else None
    match = _NUMBERED[kind].fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class WalFolder:
    """The paths of the WAL files of one shard."""

    path: Path

    @property
    def current(self) -> Path:
        return self.path / "CURRENT"

    @property
    def wal_next(self) -> Path:
        return self.path / "next.log"

    def wal_file(self, number: int) -> Path:
        return self.path / f"wal-{number:016d}.log"


@dataclass(frozen=True, slots=True)
class Layout:
    root: Path

    @property
    def lock(self) -> Path:
        return self.root / "LOCK"

    @property
    def settings(self) -> Path:
        return self.root / SETTINGS_FILE

    @property
    def meta(self) -> Path:
        return self.root / "meta"

    @property
    def ballast(self) -> Path:
        return self.meta / "ballast"

    @property
    def removed_meta(self) -> Path:
        return self.root / "meta.removed"

    @property
    def wal(self) -> Path:
        return self.root / "wal"

    @property
    def topics(self) -> Path:
        return self.root / "topics"

    def wal_folders(self, shards: int) -> tuple[WalFolder, ...]:
        """Return the WAL folder of each shard, for that many shards."""
        if shards == 1:
            return (WalFolder(self.wal),)
        return tuple(WalFolder(self.wal / f"shard-{shard:02d}") for shard in range(shards))

    def is_wal_shard(self, name: str) -> bool:
        return _SHARD_DIR.fullmatch(name) is not None

    def manifest(self, number: int) -> Path:
        return self.meta / f"snapshot.{number:016d}.json"

    def topic(self, topic_id: int) -> Path:
        return self.topics / f"{topic_id:08X}"

    def deleted_topic(self, topic_id: int) -> Path:
        return self.topics / f"{topic_id:08X}.deleted"

    def is_deleted_topic(self, name: str) -> bool:
        return _DELETED_DIR.fullmatch(name) is not None

    def data(self, topic_id: int, first_seq: int) -> Path:
        return self.part("data", topic_id, first_seq)

    def idx(self, topic_id: int, first_seq: int) -> Path:
        return self.part("idx", topic_id, first_seq)

    def part(self, kind: str, topic_id: int, first_seq: int) -> Path:
        """Return the path of one file of a segment. `kind` is one of SEGMENT_PARTS."""
        return self.topic(topic_id) / f"{self.segment(first_seq)}.{kind}"

    def segment(self, first_seq: int) -> str:
        """Return the start of the names of a segment's files."""
        return f"seg-{first_seq:016d}"

    def segment_files(self, first_seqs: list[int]) -> list[str]:
        """Return the names of .data and .idx of each segment. One format of all takes a third of the time."""
        pattern = "seg-%016d.data\nseg-%016d.idx\n" * len(first_seqs)
        return (pattern % tuple(chain.from_iterable(zip(first_seqs, first_seqs, strict=True)))).splitlines()
