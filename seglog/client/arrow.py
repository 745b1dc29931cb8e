"""A read as batches of Apache Arrow, of pages. Each page is a request of its own. No I/O.

1  The reader asks for the first page: up to 8,192 records, or half a MiB of values. The daemon makes all of such an
   answer before it sends it, so an error has its status, and `seglog-next-seq` says where the next page begins.
2  The answer names the head. The reader asks no further than there, as any read (CLIENT-4).
3  If the answer is lost, the request is repeated, as any other (CLIENT-1). The caller has seen nothing of it.
4  If a later page has another epoch or incarnation, the reader raises `ConcurrentModification`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from seglog.client.answers import Answer, unfit
from seglog.client.reading import Version, version_of, within_head
from seglog.client.requests import ARROW_TYPE, Request, Wanted, page_request

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowReading"]


@dataclass(frozen=True, slots=True)
class ArrowReading:
    """A read of a topic by pages. `wanted` is the rest of it."""

    topic: str
    wanted: Wanted
    version: Version | None = None

    @property
    def request(self) -> Request:
        return page_request(self.topic, self.wanted)

    @property
    def is_done(self) -> bool:
        wanted = self.wanted
        return self.version is not None and (wanted.start or 1) > (wanted.end or 0)

    def fed(self, answer: Answer) -> tuple[ArrowReading, list[pa.RecordBatch]]:
        """Return the rest of the read after a page, and the batches of the page. None is empty."""
        import pyarrow as pa

        if answer.headers.get("content-type") != ARROW_TYPE or "seglog-head" not in answer.headers:
            raise unfit(self.request, answer)
        version = version_of(self.topic, self.version, answer)
        wanted = within_head(self.wanted, answer) if self.version is None else self.wanted
        batches = [batch for batch in pa.ipc.open_stream(answer.body) if len(batch)]
        next_seq = answer.headers.get("seglog-next-seq")
        if next_seq is None:  # a page with long labels: it continues behind its last record
            next_seq = batches[-1].column("seq")[-1].as_py() + 1
        return replace(self, wanted=replace(wanted, start=int(next_seq)), version=version), batches
