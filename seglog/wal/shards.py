"""The shards of the write-ahead log. A topic is in shard `xxh3_64(topic_id, 8 bytes little-endian) % n`.

SHARD-1  The frames of a topic are in one shard, in their order.
    The frames of topics in different shards have no order. So a topic in another shard can take the name of a deleted
    topic only when the TOPIC_DELETE frame is durable.
SHARD-2  If there is one shard, ordinals begin with 1. Otherwise they begin with (shard + 1) * 10^14 + 1.
    So no two shards have a file number in common (WAL-3).
SHARD-3  A failure of one shard poisons all shards, because they share one state in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from seglog.files.open_file import OpenFile
from seglog.files.port import Files
from seglog.values.layout import WalFolder
from seglog.wal.manifest import WalPosition
from seglog.wal.sums import Sums
from seglog.wal.wal import Wal

__all__ = ["Wals", "first_ordinal", "open_wals", "shard_of"]

_ORDINALS = 10**14


def shard_of(topic_id: int, shards: int) -> int:
    return xxh3_64_intdigest(topic_id.to_bytes(8, "little")) % shards if shards > 1 else 0


def first_ordinal(shard: int, shards: int) -> int:
    """Return the ordinal of the first frame of the shard (SHARD-2)."""
    return (shard + 1) * _ORDINALS + 1 if shards > 1 else 1


def open_wals(
    files: Files,
    folders: Sequence[WalFolder],
    file_bytes: int,
    ends: Sequence[WalPosition],
    older: Sequence[Sequence[int]],
    mark_secret: int,
) -> Wals:
    """Open the WAL of each shard. `folders`, `ends` and `older` have one item for each shard, as `Wal` takes it."""
    parts = zip(folders, ends, older, strict=True)
    return Wals([Wal(files, folder, file_bytes, end, numbers, mark_secret) for folder, end, numbers in parts])


class Wals:
    """The WAL of each shard, and the operations on all of them."""

    def __init__(self, wals: Sequence[Wal]) -> None:
        self.each = tuple(wals)

    def __len__(self) -> int:
        return len(self.each)

    def file(self, topic_id: int, number: int) -> OpenFile:
        """Return the WAL file `number` of the topic's shard."""
        return self.each[shard_of(topic_id, len(self.each))].file(number)

    def sums(self, topic_id: int) -> Sums:
        """Return the hashes of the pieces in the topic's shard."""
        return self.each[shard_of(topic_id, len(self.each))].sums

    @property
    def used_bytes(self) -> int:
        return sum(wal.used_bytes for wal in self.each)

    @property
    def older_files(self) -> int:
        """The number of files that a checkpoint would free, in the shard with the most of them."""
        each = self.each
        return each[0].older_files if len(each) == 1 else max(wal.older_files for wal in each)

    @property
    def needs_upkeep(self) -> bool:
        return any(wal.needs_upkeep for wal in self.each)

    def prepare_next(self) -> None:
        for wal in self.each:
            if wal.needs_upkeep:
                wal.prepare_next()

    def remove_below(self, ends: Sequence[WalPosition]) -> None:
        for wal, end in zip(self.each, ends, strict=True):
            wal.remove_below(end.file)

    def release_space(self) -> None:
        for wal in self.each:
            wal.release_space()

    def forget(self) -> None:
        for wal in self.each:
            wal.forget()
