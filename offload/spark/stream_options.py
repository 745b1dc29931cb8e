"""The options of a stream: `spark.readStream.format("seglog")`. This module does no I/O.

    option                default  meaning
    startingSeq           1        where a new stream begins in each topic: a seq; `earliest`, the first seq that was
                                   not evicted; `latest`, behind the newest record. JSON gives each topic its own
    startingTimestamp     -        a new stream begins with the first record of this TIME or later
    failOnDataLoss        true     raises `DataLoss` if records that the stream needs were evicted, or records below
                                   its offset were truncated; false continues with the records that there are
    maxRecordsPerTrigger  all      the most seqs of a micro-batch, deleted records among them. All topics share them
    maxBytesPerTrigger    all      about the most decompressed bytes of a micro-batch; each topic gets at least a chunk
    headCacheMs           1000     how long the versions that the stream found count as the newest

The options path, topic, branch, tag, columns, includeMetadata, verify, reader, maxPartitionBytes and minPartitions are
those of a read. A read's options that name a version or an end are refused.

With `readChangeFeed=true`, the stream gives what each commit changed. A new one begins with the commit
`startingVersion`, or with the first at `startingTimestamp`. A micro-batch has whole commits, so the limits are refused.
If no commit is so late, the stream begins behind the newest one. A `startingTimestamp` in the future is refused then.

A checkpoint overrules `startingSeq`, `startingTimestamp` and `startingVersion`. A topic that a glob finds later begins
with its first record. If the stream has no `startingSeq`, that is seq 1. Otherwise it is the first one that was not
evicted.

Kafka's names `subscribe`, `startingOffsets` and `maxOffsetsPerTrigger` mean `topic`, `startingSeq` and
`maxRecordsPerTrigger`. Unlike Kafka's stream, this one begins with seq 1 by default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from offload.errors import InvalidOption
from offload.spark.option_texts import INT64_MAX, NUMBER, OptionTexts, named
from offload.spark.options import (
    EARLIEST,
    KNOWN_OPTIONS,
    STREAM_ONLY,
    ReadOptions,
    checked_seq,
    parse_options,
    read_options,
)
from seglog.base.dataclasses import dataclass

LATEST = -1
_READ_ONLY = (
    "versionAsOf", "timestampAsOf", "endingSeq", "endingOffsets", "endingTimestamp", "pinSeconds", "kmsKeyId",
    "endingVersion",
)  # fmt: skip
_ALIASES = {"subscribe": "topic", "startingOffsets": "startingSeq", "maxOffsetsPerTrigger": "maxRecordsPerTrigger"}
STREAM_OPTIONS = tuple(name for name in (*KNOWN_OPTIONS, *STREAM_ONLY) if name not in {*_READ_ONLY, *_ALIASES})
_MILLISECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The parsed options of a stream. In `read.starting`, `LATEST` means behind the newest record.

    `max_records` and `max_bytes` are None if the user gave none.
    """

    read: ReadOptions
    max_records: int | None = None
    max_bytes: int | None = None
    head_cache_ms: int = 1000


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Return the options of a stream in `given`. Raises `InvalidOption`."""
    found = OptionTexts(named(given, STREAM_OPTIONS, _ALIASES, dict.fromkeys(_READ_ONLY, "read")))
    limit = "maxOffsetsPerTrigger" if found.has("maxOffsetsPerTrigger") else "maxRecordsPerTrigger"
    return StreamOptions(
        read=read_options(found, _start),
        max_records=found.number(limit, INT64_MAX, NUMBER, "a number from 1 on") if found.has(limit) else None,
        max_bytes=found.size_bytes("maxBytesPerTrigger", INT64_MAX) if found.has("maxBytesPerTrigger") else None,
        head_cache_ms=found.number("headCacheMs", 1000, _MILLISECONDS, "milliseconds, 0 to 999999999"),
    )


def parse_any_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a load that may become a read or a stream, because Spark does not tell which.

    Raises `InvalidOption` if they fit neither.
    """
    if {name.lower() for name in given} & {name.lower() for name in STREAM_ONLY}:
        return parse_stream_options(given).read
    try:
        return parse_options(given)
    except InvalidOption as refusal:
        try:
            return parse_stream_options(given).read
        except InvalidOption:
            raise refusal from None


def _start(name: str, found: object) -> int:
    words = {"earliest": EARLIEST, "latest": LATEST}
    return words[found] if isinstance(found, str) and found in words else checked_seq(name, found, ", ".join(words))
