"""Index objects of several ledgers, as Pulsar writes them."""

from __future__ import annotations

from catalog import schema_pb2 as pb
from offload.format.streamed import ENTRY, HEADER, LEDGER, MAGIC

__all__ = ["Ledger", "index_of"]

Ledger = tuple[int, int, list[tuple[int, int, int]]]


def index_of(ledgers: list[Ledger], data_length: int, *, data_header_length: int = 128) -> bytes:
    """Return an index object. Each item of `ledgers` is (ledger id, number of entries, index entries)."""
    body = b""
    for ledger_id, count, entries in ledgers:
        info = pb.StreamedLedgerInfo(ledger_id=ledger_id, entries=count, size=7, timestamp=8).SerializeToString()
        body += LEDGER.pack(ledger_id, len(entries), len(info)) + info
        body += b"".join(ENTRY.pack(*entry) for entry in entries)
    return HEADER.pack(MAGIC, HEADER.size + len(body), data_length, data_header_length) + body
