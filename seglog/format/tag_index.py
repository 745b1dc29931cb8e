"""A tag index, seg-<first_seq>.tags: the tags of a sealed segment, and the records with each tag. Little-endian.

    size    field
    8       magic      "SEGTAGS1"
    8       topic_id
    8       first_seq
    4       records    of the segment
    4       directory  its length in bytes
    per tag, ascending by bytes:
      2       length     of the tag
      4       count      of the records with it, 1 at least
      8       check      XXH3-64 of their positions
      length  tag        UTF-8
    8       check      XXH3-64 of all before it: head and directory
    per tag, in the same order:
      4       position   of each record with it, ascending: seq - first_seq

TAGIDX-1  A tag index is derivable from .data. If it is missing, damaged, or of another segment, the log makes
    it again. The log never trusts such an index.
TAGIDX-2  It lists deleted records too, as long as they have their bytes. The flags in .idx tell which are deleted. A
    complete tag index never changes.
TAGIDX-3  A lookup reads head and directory, and then the positions of the matching tags. It reads no .data.

No I/O: bytes in, bytes out. seglog.segments.tags reads and writes the file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from seglog.errors import InvalidEntry
from seglog.format.arrays import NDArray, np

_MAGIC = b"SEGTAGS1"
HEAD = struct.Struct("<8sQQII")
_TAG = struct.Struct("<HIQ")
_CHECK = struct.Struct("<Q")
_POSITION_BYTES = 4


class TagHead(NamedTuple):
    """The head of a tag index. At `directory_end` the first check ends, and the positions begin."""

    topic_id: int
    first_seq: int
    records: int
    directory_end: int


class TagPlace(NamedTuple):
    """The place of one tag's positions in the file."""

    offset: int
    length: int
    check: int


def encode_tag_index(topic_id: int, first_seq: int, records: int, positions: Mapping[bytes, list[int]]) -> bytes:
    directory, body = [], []
    for tag in sorted(positions):
        raw = np.array(positions[tag], "<u4").tobytes()
        directory.append(_TAG.pack(len(tag), len(positions[tag]), xxh3_64_intdigest(raw)) + tag)
        body.append(raw)
    entries = b"".join(directory)
    head = HEAD.pack(_MAGIC, topic_id, first_seq, records, len(entries)) + entries
    return b"".join((head, _CHECK.pack(xxh3_64_intdigest(head)), *body))


def read_head(raw: bytes) -> TagHead:
    """Return the head from the first bytes of a file, HEAD.size at least. Its check is not verified yet.

    Raise `InvalidEntry`.
    """
    if len(raw) < HEAD.size:
        raise InvalidEntry(0, "the tags end within their head")
    magic, topic_id, first_seq, records, directory = HEAD.unpack_from(raw)
    if magic != _MAGIC:
        raise InvalidEntry(0, "this is not a tag index")
    return TagHead(topic_id, first_seq, records, HEAD.size + directory + _CHECK.size)


def read_directory(raw: bytes, head: TagHead) -> dict[bytes, TagPlace]:
    """Return the place of each tag's positions. `raw` has the first `directory_end` bytes. Raise `InvalidEntry`."""
    end = head.directory_end - _CHECK.size
    if len(raw) < head.directory_end or _CHECK.unpack_from(raw, end)[0] != xxh3_64_intdigest(raw[:end]):
        raise InvalidEntry(0, "check mismatch in the directory of tags")
    places: dict[bytes, TagPlace] = {}
    at, offset = HEAD.size, head.directory_end
    while at < end:
        length, count, check = _TAG.unpack_from(raw, at)
        at += _TAG.size + length
        places[raw[at - length : at]] = TagPlace(offset, count * _POSITION_BYTES, check)
        offset += count * _POSITION_BYTES
    return places


def read_positions(raw: bytes, place: TagPlace) -> NDArray[np.uint32]:
    """Return the positions of one tag. `raw` has the bytes at `place`. Raise `InvalidEntry`."""
    if len(raw) != place.length or xxh3_64_intdigest(raw) != place.check:
        raise InvalidEntry(0, "check mismatch in the positions of a tag")
    return np.frombuffer(raw, "<u4")
