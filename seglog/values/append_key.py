"""Keys: an append under a key may be repeated, and its records are there once.

A key is a text that a caller makes for one append, such as a UUID. It serves a caller that numbers nothing, as a
producer does (seglog.values.producer). The log keeps a key with its seqs and a digest of the values.

    the key                                         the log
    unknown, or appended longer ago than            appends the records
    `idempotency_keep_s`
    known, and the values are the same              appends nothing, and returns the seqs of the first append
    known, and the values are others                raises `KeyReused`
    unknown, and the topic has 10,000 keys          raises `TooManyKeys`

KEYS-1  The log decides under the lock that assigns seqs, before it takes one. So of two calls with one key, only one
    appends. A refused append keeps no key.
KEYS-2  The answer to a repetition comes when the first append is durable. If the first append fails, the repetition
    fails with it.
KEYS-3  The log keeps each key for `idempotency_keep_s` after its append, by its clock. It never forgets one earlier.
    So a topic with 10,000 keys refuses a new one. If it forgot the oldest instead, a repetition would
    append the records twice, and its caller would not notice.
KEYS-4  Neither a key nor a producer takes the place of the other.
KEYS-5  A truncation changes no key. A repetition of a truncated append returns the seqs that it had. The deletion of a
    topic ends its keys, unless this directory follows the topic from then on (ELSEWHERE-2). They are not in an archive,
    so a new directory knows none.

No I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, final

from xxhash import xxh3_64, xxh3_64_intdigest

from seglog.errors import KeyReused
from seglog.values.producer import AppendedBatch, check_id

_SIZE = struct.Struct("<Q")


class Key(NamedTuple):
    """A key as a topic knows it: the time and the seqs of its append, and the digest of the values."""

    ts_ms: int
    first_seq: int
    records: int
    digest: int

    @property
    def seqs(self) -> range:
        return range(self.first_seq, self.first_seq + self.records)


class GivenKey(NamedTuple):
    """The key of a call, with the number and the digest of its values."""

    key: str
    records: int
    digest: int


@final
class KeyedAppend(NamedTuple):
    """An append under a key as the log writes it."""

    key: str
    first_seq: int
    records: int
    digest: int


@final
class PlainAppend(NamedTuple):
    """An append of several records without an identity, as the log writes it."""

    first_seq: int
    records: int


#: An append that may be repeated, as the log writes it.
Repeatable: TypeAlias = AppendedBatch | KeyedAppend
#: An append whose records are one unit of the WAL, with its identity if it has one.
Unit: TypeAlias = Repeatable | PlainAppend


def check_key(key: str) -> str:
    """Return the key. Raise `InvalidArgument` for a text that is empty or too long."""
    return check_id(key, "key")


def digest_of(values: Sequence[bytes]) -> int:
    """Return the digest of the values: XXH3-64 of all their bytes, then of their sizes as u64 little-endian."""
    if len(values) == 1 and type(values[0]) is bytes:
        return xxh3_64_intdigest(values[0] + _SIZE.pack(len(values[0])))  # the common case
    digest = xxh3_64()
    for value in values:
        digest.update(value)
    digest.update(struct.pack(f"<{len(values)}Q", *map(len, values)))
    return digest.intdigest()


def repeated_key(topic: str, former: Key | None, given_key: GivenKey) -> range | None:
    """Return the seqs of the append if the topic has it already, and None if the log appends it now.

    Raise `KeyReused` if the topic knows the key with other values.
    """
    if former is None:
        return None
    if (former.records, former.digest) != (given_key.records, given_key.digest):
        raise KeyReused(topic, given_key.key, former.first_seq, former.records)
    return former.seqs
