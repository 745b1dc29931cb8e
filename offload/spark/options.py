"""The options of the Spark source, as a user gives them. This module does no I/O.

    option             default    meaning
    path               -          the remote, s3://bucket/prefix or file:///path: the argument of load()
    topic              -          one topic, a list (orders,events), or a glob (ord*); TOPIC@BRANCH names a branch
    branch             main       the branch of all these topics
    versionAsOf        newest     an LSN of the branch's history: the state right after that commit; or tag:NAME
    timestampAsOf      -          the state at a TIME. Of a glob, a topic without a commit since then shows its newest
                                  state, and a topic that began later is left out
    startingSeq        1          the first seq; or `earliest`, the first seq that was not evicted
    endingSeq          latest     the last seq, inclusive
    startingTimestamp  -          records of this TIME and later
    endingTimestamp    -          records up to this TIME, inclusive
    tag                -          records with this tag; TEXT* means all tags that begin with TEXT
    columns            all        the columns, in this order: seq,value
    includeMetadata    false      adds the columns segment, block and offset
    failOnDataLoss     true       raises `DataLoss` if records of the range were evicted; false leaves them out
    verify             record     record checks each record, chunk only the chunks, none neither of them
    reader             -          jvm or python: insists on that reader
    maxPartitionBytes  128m       the most decompressed bytes of a task, if no chunk is larger
    minPartitions      1          the least number of tasks, if there are so many chunks
    pinSeconds         21600      how long a lease holds a past version, so that garbage collection leaves it alone
                                  during the job; 0: no lease
    kmsKeyId           -          the KMS key of the lease, which is the only object that a read writes
    readChangeFeed     false      true reads what each commit changed, in place of a version: see below
    startingVersion    oldest     the first commit of that feed, an LSN. LSN@VOLUME goes on after a promotion
    endingVersion      newest     its last commit

A TIME is ISO 8601 with its zone, such as 2026-11-22T09:30:00Z, or milliseconds since 1970, or `2 hours ago`.
`startingSeq` and `endingSeq` also take JSON, with a seq for each topic: {"orders": 23, "events": "earliest"}.

Without `startingSeq`, the range begins with seq 1. So evicted records are in it, and the read fails. With `earliest`,
the range begins behind them. A time range that begins before the first kept record may have evicted records, too. Then
the read fails as well. It also fails if `startingSeq` lies beyond the record after the newest: a truncation took what
was there.

If `verify=record` is given, every data object of the range is read and checked. Without the option, a query that needs
no data object reads none. Each record that is read is checked.

With `readChangeFeed=true`, the rows are the changes of one topic or branch, with the columns _change and _lsn (see
offload.spark.columns and offload.spark.change_feed). LSNs are those of the commits that the branch has itself. Without
`startingVersion`, the feed begins with all records of the oldest state that is kept, as appends. A start that garbage
collection has passed raises `OutOfWindow`, whatever `failOnDataLoss` says. `startingTimestamp` and `endingTimestamp`
then are times of commits, as in Delta: the feed begins with the first kept commit of that time or later, and ends
before the first one after its end. A feed takes no lease. Options of leases, versions, seqs or a tag are refused.

Names of Kafka's source and of Delta:

    name                 here
    subscribe            the same as topic
    startingOffsets      the same as startingSeq: earliest, or {"orders": {"0": 23}}; -2 is earliest
    endingOffsets        exclusive, unlike endingSeq: latest, or {"orders": {"0": 50}} for up to 49; -1 is latest
    startingTimestamp    the same
    endingTimestamp      inclusive, as in Delta. Kafka's is exclusive
    failOnDataLoss       the same
    minPartitions        the same
    versionAsOf          the same as Delta's, with LSNs for versions
    timestampAsOf        the same as Delta's. A time without its zone is refused
    subscribePattern     none: it is a regular expression, and topic takes globs
    assign               none: a topic has no partitions
    readChangeFeed       the same, with _change and _lsn for _change_type and _commit_version
    startingVersion      the same, in a feed of changes only; so is endingVersion
    others               are refused

A stream takes most of these options, and some of its own: see offload.spark.stream_options.

Spark gives option names in lower case, and accepts unknown ones in silence. `parse_options` refuses them.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from offload.errors import InvalidOption
from offload.spark.option_texts import INT64_MAX, NUMBER, OptionTexts, named
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from catalog.format.ids import Vid

KNOWN_OPTIONS = (
    "path", "topic", "branch", "versionAsOf", "timestampAsOf", "startingSeq", "endingSeq", "startingTimestamp",
    "endingTimestamp", "tag", "columns", "includeMetadata", "failOnDataLoss", "verify", "reader", "maxPartitionBytes",
    "minPartitions", "pinSeconds", "kmsKeyId", "readChangeFeed", "startingVersion", "endingVersion",
)  # fmt: skip
_ALIASES = {"subscribe": "topic", "startingOffsets": "startingSeq", "endingOffsets": "endingSeq"}
STREAM_ONLY = ("maxRecordsPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "headCacheMs")

EARLIEST = 0
_OF_FEEDS = ("startingVersion", "endingVersion")
_NOT_OF_FEEDS = (
    "versionAsOf", "timestampAsOf", "startingSeq", "startingOffsets", "endingSeq", "endingOffsets", "tag",
    "maxRecordsPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "pinSeconds", "kmsKeyId",
)  # fmt: skip
_HINTS_OF_FEEDS = {
    "versionAsOf": "endingVersion ends the feed",
    "timestampAsOf": "endingTimestamp ends the feed",
    "pinSeconds": "a feed takes no lease: leave it out",
    "kmsKeyId": "a feed writes no lease: leave it out",
}
_MAIN = "main"
_SECONDS = re.compile(r"[0-9]{1,7}", re.ASCII)
_READERS = ("jvm", "python")
_IS_GLOB = re.compile(r"[*?\[]")
_DEFAULT_TASK_BYTES = 128 * 2**20


class Verify(enum.StrEnum):
    """How much of the data is checked before a row leaves."""

    CHUNK = "chunk"
    RECORD = "record"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A topic, or a glob of topics, and the branch to read of each."""

    text: str
    branch: str = _MAIN

    @property
    def is_glob(self) -> bool:
        return _IS_GLOB.search(self.text) is not None


@dataclass(frozen=True, slots=True)
class Positions:
    """A seq for each topic in `by_topic`, and `default` for every other one. None: not given. 0: `EARLIEST`."""

    default: int | None = None
    by_topic: Mapping[str, int | None] = field(default_factory=dict[str, int | None])

    def of(self, topic: str) -> int | None:
        return self.by_topic.get(topic, self.default)


@dataclass(frozen=True, slots=True)
class FeedRange:
    """The commits of a feed of changes, inclusive. `volume` has the commit `first`; None is the branch's own volume."""

    first: int | None = None
    volume: Vid | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The parsed options. At most one of `version`, `tag_name` and `as_of` is set; none means the newest version.

    The times are texts that `moment_ms` takes. `verify` is None if the user gave none.
    """

    url: str
    topics: tuple[TopicPattern, ...]
    version: int | None = None
    tag_name: str | None = None
    as_of: str | None = None
    starting: Positions = Positions()
    ending: Positions = Positions()
    starting_time: str | None = None
    ending_time: str | None = None
    tag: str | None = None
    columns: tuple[str, ...] | None = None
    include_metadata: bool = False
    fail_on_data_loss: bool = True
    verify: Verify | None = None
    reader: str | None = None
    max_task_bytes: int = _DEFAULT_TASK_BYTES
    min_tasks: int = 1
    pin_seconds: int = 21_600
    kms_key_id: str = ""
    feed: FeedRange | None = None

    @property
    def is_newest(self) -> bool:
        return self.version is None and self.tag_name is None and self.as_of is None

    @property
    def is_one_topic(self) -> bool:
        return len(self.topics) == 1 and not self.topics[0].is_glob


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options in `given`. Raises `InvalidOption`."""
    texts = named(given, KNOWN_OPTIONS, _ALIASES, dict.fromkeys(STREAM_ONLY, "readStream"))
    return read_options(OptionTexts(texts), _start)


def read_options(found: OptionTexts, start: Callable[[str, object], int]) -> ReadOptions:
    """Return the options in `found`. `start` reads a seq to begin with. Raises `InvalidOption`."""
    url = found.required("path", 'load("s3://bucket/prefix")')
    topics = _topics(found)
    version, tag_name, as_of = _version(found, topics)
    return ReadOptions(
        url=url,
        topics=topics,
        version=version,
        tag_name=tag_name,
        as_of=as_of,
        starting=_positions(found.seqs("startingSeq", start) or found.offsets("startingOffsets", start, 0)),
        ending=_positions(found.seqs("endingSeq", _end) or found.offsets("endingOffsets", _end, -1)),
        starting_time=found.time("startingTimestamp"),
        ending_time=found.time("endingTimestamp"),
        tag=found.get("tag"),
        columns=_columns(found),
        include_metadata=found.flag("includeMetadata", default=False),
        fail_on_data_loss=found.flag("failOnDataLoss", default=True),
        verify=_verify(found),
        reader=found.choice("reader", _READERS),
        max_task_bytes=found.size_bytes("maxPartitionBytes", _DEFAULT_TASK_BYTES),
        min_tasks=found.number("minPartitions", 1, NUMBER, "a number from 1 on"),
        pin_seconds=found.number("pinSeconds", 21_600, _SECONDS, "a number of seconds, 0 to 9999999"),
        kms_key_id=found.get("kmsKeyId") or "",
        feed=_feed(found, topics),
    )


def _positions(found: tuple[int | None, dict[str, int | None]] | None) -> Positions:
    return Positions() if found is None else Positions(*found)


def _start(name: str, found: object) -> int:
    return EARLIEST if found == "earliest" else checked_seq(name, found, "earliest")


def _end(name: str, found: object) -> int | None:
    least = 0 if name == "endingOffsets" else 1
    return None if found == "latest" else checked_seq(name, found, "latest", least)


def checked_seq(name: str, found: object, words: str, least: int = 1) -> int:
    """Return the seq `found`. Raises `InvalidOption`, which names the words that the option takes, too."""
    if type(found) is not int or not least <= found <= INT64_MAX:
        raise InvalidOption(
            name, f"{found!r} is not a seq to begin or end with", hint=f"{words}, or a number from 1 on"
        )
    return found


def _topics(found: OptionTexts) -> tuple[TopicPattern, ...]:
    name = "topic" if found.get("subscribe") is None else "subscribe"
    texts = [text.strip() for text in found.required(name, 'option("topic", "orders")').split(",")]
    branch = found.get("branch")
    patterns: dict[str, TopicPattern] = {}
    for text in texts:
        topic, at, named = text.partition("@")
        if not topic:
            raise InvalidOption(name, f"{text!r} has no topic in it")
        if at and branch not in {None, named}:
            raise InvalidOption(
                "branch", f"topic says {named!r} and branch says {branch!r}", hint="give one of the two"
            )
        pattern = TopicPattern(topic, named if at else branch if branch is not None else _MAIN)
        if patterns.setdefault(topic, pattern) != pattern:
            raise InvalidOption(name, f"{topic} is named with two branches", hint="load each branch, and use union()")
    return tuple(patterns.values())


def _version(found: OptionTexts, topics: tuple[TopicPattern, ...]) -> tuple[int | None, str | None, str | None]:
    text, as_of = found.get("versionAsOf"), found.time("timestampAsOf")
    if text is None:
        return None, None, as_of
    if as_of is not None:
        raise InvalidOption("timestampAsOf", "versionAsOf is given, too", hint="give one of the two")
    if text.startswith("tag:") and text != "tag:":
        return None, text.removeprefix("tag:"), None
    if not NUMBER.fullmatch(text) or int(text) > INT64_MAX:
        hint = "`seglog log TOPIC` shows the LSNs, `seglog tag list TOPIC` the tags"
        raise InvalidOption("versionAsOf", f"{text!r} is not an LSN, nor tag:NAME", hint=hint)
    if len(topics) > 1 or topics[0].is_glob:
        hint = "each topic counts its own LSNs: use timestampAsOf or tag:NAME, or read one topic"
        raise InvalidOption("versionAsOf", "an LSN is a version of one topic", hint=hint)
    return int(text), None, None


def _feed(found: OptionTexts, topics: tuple[TopicPattern, ...]) -> FeedRange | None:
    is_feed = found.flag("readChangeFeed", default=False)
    for name in _NOT_OF_FEEDS if is_feed else _OF_FEEDS:
        if found.has(name):
            if is_feed:
                hint = _HINTS_OF_FEEDS.get(name, "filter its rows by a query")
                raise InvalidOption(name, "a feed of changes does not take it", hint=hint)
            hint = "say readChangeFeed=true, too. In SQL, the table TOPIC.changes takes it"
            raise InvalidOption(name, "it is the range of a feed of changes", hint=hint)
    if not is_feed:
        return None
    if len(topics) > 1 or topics[0].is_glob:
        hint = "each topic counts its own LSNs: read the feed of each topic, and use union()"
        raise InvalidOption("topic", "a feed of changes is of one topic", hint=hint)
    for name, other in (("startingVersion", "startingTimestamp"), ("endingVersion", "endingTimestamp")):
        if found.has(name) and found.has(other):
            raise InvalidOption(other, f"{name} is given, too", hint="give one of the two")
    text, at, volume = (found.get("startingVersion") or "").partition("@")
    first = _lsn("startingVersion", text) if text or at else None
    return FeedRange(first, _volume(volume) if at else None, _lsn("endingVersion", found.get("endingVersion")))


def _lsn(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not NUMBER.fullmatch(text) or int(text) > INT64_MAX:
        raise InvalidOption(name, f"{text!r} is not an LSN", hint="`seglog log TOPIC` shows the LSNs")
    return int(text)


def _volume(text: str) -> Vid:
    from catalog.errors import InvalidKey  # imported late: workers load this module
    from catalog.format.ids import Vid

    try:
        return Vid.parse(text)
    except InvalidKey:
        hint = "`seglog log TOPIC --json` names the volume of each commit"
        raise InvalidOption("startingVersion", f"{text!r} is no volume", hint=hint) from None


def _columns(found: OptionTexts) -> tuple[str, ...] | None:
    text = found.get("columns")
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if len(set(names)) < len(names):
        raise InvalidOption("columns", f"{text!r} names a column twice")
    return names


def _verify(found: OptionTexts) -> Verify | None:
    text = found.choice("verify", tuple(each.value for each in Verify))
    return None if text is None else Verify(text)
