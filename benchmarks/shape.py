"""The answers of a store far away: the first byte comes late, and each connection gets so many bytes a second."""

from __future__ import annotations

import time
from dataclasses import dataclass

__all__ = ["Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The delay and the rate of each answer on each connection, independent of the others.

    `bytes_per_s` 0 means no limit.
    """

    first_byte_s: float = 0.0
    bytes_per_s: float = 0.0

    def wait(self, since: float, sent: int) -> None:
        """Sleep until an answer may have sent `sent` bytes.

        `since` is the time of its request, by `time.perf_counter`.
        """
        due = since + self.first_byte_s + (sent / self.bytes_per_s if self.bytes_per_s else 0.0)
        wait_s = due - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
