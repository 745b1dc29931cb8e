"""The end of a WAL file that a crash left: a torn write is cut, and bytes that were durable once are damage.

    invalid frame                               verdict                                         rule of seglog.wal.wal
    in a WAL file that is not active            damage: it was whole and durable                WAL-1
    whole, of an unknown type or with unknown   another version wrote it: `FormatUnsupported`
    flags
    in the active file, a sync mark follows     damage: all before the mark was durable         WAL-3
    in the active file, past the end of the     damage: somebody cut the file                   WAL-8
    file
    in the active file, anything else           torn: no part of it was ever acked at fsync

If a torn write begins within a batch of a producer, or an append under a key, recovery cuts all of it (BATCHFRAME-2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seglog.base.lazy import logger
from seglog.errors import FileCorrupt, InvalidFrame
from seglog.files.file_system import OpenFile
from seglog.wal.scan import check_known, check_not_cut
from seglog.wal.wal import durable_after, foreign_mark, is_blank

if TYPE_CHECKING:
    from seglog.startup.replay import Replay

_logger = logger("seglog.startup.torn_tail")


def cut_torn_tail(
    file: OpenFile, number: int, error: InvalidFrame, size: int, replay: Replay, *, is_active: bool, is_view: bool
) -> None:
    """Judge the bytes behind the last whole frame of a WAL file, and cut a torn write.

    In a view, a torn write may be one that the writer is making.

    Raises `FileCorrupt`, `FormatUnsupported`.
    """
    check_known(file, error, size)
    if not is_active:
        raise FileCorrupt(file.path, error.offset, error.reason) from error
    batch, secret = replay.batch, replay.mark_secret
    if batch is not None:
        batch.open.check_not_cut(file, error.offset, size)
    elif is_blank(file, error.offset, size):
        return
    mark = durable_after(file, number, error.offset, size, secret)
    if mark is not None:
        raise FileCorrupt(file.path, error.offset, f"{error.reason}; the bytes up to {mark} were durable") from error
    if foreign_mark(file, number, error.offset, size, secret) is not None:
        raise FileCorrupt(file.path, error.offset, f"{error.reason}; the bytes are those of another file") from error
    check_not_cut(file, error, size)
    begin = error.offset if batch is None else batch.open.begin
    tell = _logger.debug if is_view else _logger.warning
    tell("%s ends at offset %d, where a torn write begins: %s", file.path, begin, error.reason)
    file.truncate(begin)
