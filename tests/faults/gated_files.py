"""A file port whose syncs wait."""

from __future__ import annotations

import threading

from seglog.files.file_system import OsFiles

__all__ = ["GatedFiles"]


class GatedFiles(OsFiles):
    """A file port whose datasync waits for the gate. It counts the syncs."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()
        self.syncs = 0

    def datasync(self, fd: int) -> None:
        self.waiting.set()
        assert self.gate.wait(60)
        self.syncs += 1
        super().datasync(fd)
