"""Read PIP-17 objects as Apache Pulsar's BlobStoreBackedReadHandle does. The reader shares no code with seglog.

The reader finds an entry by the index, and seeks to the index entry's offset plus the header length. It reads entries
one after the other. A negative length is the end of the block. Then the reader seeks to the place that the index has
for the next expected entry.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from catalog import schema_pb2 as pb


class PulsarReader:
    def __init__(self, index: bytes, data: bytes) -> None:
        magic, _, self.data_length, self.header_length, count, metadata_length = struct.unpack_from(">iiqqii", index)
        assert magic & 0xFFFFFFFF == 0xDE47DE47
        self.ledger = pb.LedgerMetadata.FromString(index[32 : 32 + metadata_length])
        self.entries = [
            struct.unpack_from(">qiq", index, 32 + metadata_length + 20 * number) for number in range(count)
        ]
        self.data = data
        self.seeks = 0

    def read(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        assert 0 <= first <= last <= self.ledger.last_entry_id
        expected = first
        position = self._seek(expected)
        while expected <= last:
            length = struct.unpack_from(">i", self.data, position)[0] if position + 4 <= len(self.data) else -1
            if length < 0:
                position = self._seek(expected)
                continue
            (entry_id,) = struct.unpack_from(">q", self.data, position + 4)
            start, position = position + 12, position + 12 + length
            if entry_id == expected:
                yield entry_id, self.data[start:position]
                expected += 1
            else:
                assert entry_id < expected, "Pulsar would seek forever"

    def _seek(self, entry_id: int) -> int:
        self.seeks += 1
        assert self.seeks < 10_000, "Pulsar would seek forever"
        offset = max(entry for entry in self.entries if entry[0] <= entry_id)[2]
        return int(offset) + self.header_length
