"""How a store far away answers: its first byte comes late, and each connection gets so many bytes a second."""

from __future__ import annotations

import time
from dataclasses import dataclass

__all__ = ["Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Of each answer on each connection, whatever others get. `bytes_per_s` 0: as many as go through."""

    first_byte_s: float = 0.0
    bytes_per_s: float = 0.0

    def wait(self, since: float, sent: int) -> None:
        """Until an answer to the request of `since` (by `time.perf_counter`) may have got `sent` bytes far."""
        due = since + self.first_byte_s + (sent / self.bytes_per_s if self.bytes_per_s else 0.0)
        wait_s = due - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
