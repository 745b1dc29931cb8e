"""The syncs of the segments that a checkpoint writes.

A sync waits for the disk, and the copy of the next segment needs the processor. In the background thread of a log,
another thread makes the sync meanwhile. All syncs have ended before the checkpoint goes on to its next step.
"""

from __future__ import annotations

import threading
from typing import NoReturn

from seglog.files.port import NO_DESCRIPTOR
from seglog.segments.segment import SegmentWriter
from seglog.wal.wal import NO_SPACE

__all__ = ["Syncs"]


class Syncs:
    """Syncs segments, one after the other. With `is_beside`, the caller continues during a sync."""

    __slots__ = ("_failure", "_is_beside", "_thread")

    def __init__(self, *, is_beside: bool) -> None:
        self._is_beside = is_beside
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def begin(self, writer: SegmentWriter) -> None:
        """Write and sync what the writer has, after the sync that has begun before. Raises the `OSError` of either.

        The caller gives the writer no further records.
        """
        self.finish()
        if self._is_beside:
            writer.flush()
            self._thread = threading.Thread(target=self._run, args=(writer,), name="seglog-sync", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the process has no room for another thread
                self._thread = None
        if self._thread is None:
            writer.sync()

    def finish(self) -> None:
        """Return when the last sync has ended. Raises its `OSError`."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def finish_after(self, error: BaseException) -> NoReturn:
        """Wait for the last sync. Raise its failure if that poisons the writer (CKPT-5), and otherwise `error`.

        After a failed sync the content of the files is unknown, whatever failed beside it. A full disk is no reason to
        hide `error`, which may poison the writer itself.
        """
        try:
            self.finish()
        except OSError as failure:
            if failure.errno not in (*NO_SPACE, *NO_DESCRIPTOR):
                raise failure from error
        raise error

    def _run(self, writer: SegmentWriter) -> None:
        try:
            writer.sync()
        except BaseException as error:
            self._failure = error
