"""The end of a connection whose client may still send: how long the daemon drops its bytes (sans I/O).

The daemon D refuses a request of a client C before the body is whole, or bytes that are not HTTP:

    1  D sends the answer, which says `Connection: close`.
    2  D ends its direction of the connection. TLS has no such end, so there D leaves this step out.
    3  C still sends. D reads the bytes and drops them.
    4  C reads the answer, and closes the connection. D does the same.
    5  If C does not close, D closes 5 s after the last byte, after 30 s, or after 256 MiB.

LINGER-1  If D closed after step 1, C's next bytes would meet a reset. The system of C then drops the answer before C
    reads it (RFC 9112, section 9.6).
LINGER-2  A connection that lingers has no place (offload.daemon.places), and D keeps none of its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Lingering"]

_SILENT_S = 5
_LONGEST_S = 30
_MOST_BYTES = 256 * 1024 * 1024


@dataclass(slots=True)
class Lingering:
    """One connection that lingers since `start_s`. Its last byte came at `came_s`."""

    start_s: float
    came_s: float
    dropped_bytes: int = 0

    def drop(self, size_bytes: int, now_s: float) -> None:
        self.came_s = now_s
        self.dropped_bytes += size_bytes

    def left_s(self, now_s: float) -> float:
        """Return the time until the connection closes; at most 0 if it closes now."""
        if self.dropped_bytes >= _MOST_BYTES:
            return 0
        return min(self.came_s + _SILENT_S, self.start_s + _LONGEST_S) - now_s
