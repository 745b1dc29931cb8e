"""Statistics by topic and tag: one query of the source for some topics at a time.

STAT-1  A topic's numbers are of one version. The state takes them only if no commit came while Spark planned the
    query. Otherwise nothing tells which version was counted.
STAT-2  A run with a state counts the topics whose version is not on record. The numbers of a topic with a ttl are of
    the time at which that version was counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from offload.moment import Moment
from offload.spark.jobs.progress import Directory, job_state
from offload.spark.jobs.topics import AtLeastOne, DryRun, dry_run_of, job_options, pinned
from offload.spark.options import ReadOptions
from offload.spark.pin import PinnedTopic
from offload.spark.registration import register
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass

_TOPICS_AT_A_TIME = 64


@dataclass(frozen=True, slots=True)
class TagStatistics:
    """The records of a topic with one tag. `bytes` counts the bytes of their values. `tag` is None for no tag."""

    topic: str
    branch: str
    tag: str | None
    records: int
    bytes: int
    first_seq: int
    last_seq: int
    first: Moment
    last: Moment


@dataclass(frozen=True, slots=True)
class StatisticsResult:
    """The statistics, ascending by topic and tag. `resumed` counts the topics that an earlier run counted."""

    rows: tuple[TagStatistics, ...]
    topics: int
    resumed: int


@checked
def statistics(
    spark: Any,
    remote: str,
    topic: str = "*",
    *,
    branch: str | None = None,
    version: str | int | None = None,
    as_of: str | None = None,
    state: Directory | None = None,
    topics_at_a_time: AtLeastOne = _TOPICS_AT_A_TIME,
    kms_key_id: str = "",
    dry_run: bool = False,
) -> StatisticsResult | DryRun:
    """Count records, bytes, times and seqs of each topic and tag.

    `topic` is a topic, a list or a glob. `version` and `as_of` choose a past state, as the options `versionAsOf` and
    `timestampAsOf` of the source do. A lease carries `kms_key_id`. Raises `InvalidOption`, `NoSuchTopic` and what
    the store raises.
    """
    options = job_options(remote, topic, branch, version, as_of, kms_key_id)
    if dry_run:
        return dry_run_of(options)
    register(spark)
    found: dict[str, list[TagStatistics]] = {}
    topics = _versions(options)
    facts = {"job": "statistics", "remote": remote, "newest": options.is_newest}
    with job_state(state, "statistics", facts) as known:
        wanted = []
        for each in topics:
            if _key(each) in known.done:
                found[each.topic] = [_decoded(row) for row in known.done[_key(each)]]
            else:
                wanted.append(each)
        for start in range(0, len(wanted), topics_at_a_time):
            some = wanted[start : start + topics_at_a_time]
            counted = _counted(spark, options, some)
            found.update(counted)
            certain = set(_versions(_only(options, some))) if options.is_newest else set(some)
            known.add({_key(each): [asdict(row) for row in counted[each.topic]] for each in some if each in certain})
    rows = tuple(row for each in topics for row in found[each.topic])
    return StatisticsResult(rows, len(topics), len(topics) - len(wanted))


def _versions(options: ReadOptions) -> tuple[PinnedTopic, ...]:
    """Return the versions that the options mean now. The query holds them, so these take no lease."""
    with pinned(replace(options, pin_seconds=0)) as found:
        return found.topics


def _only(options: ReadOptions, topics: Sequence[PinnedTopic]) -> ReadOptions:
    return job_options(options.url, _text(topics))


def _text(topics: Sequence[PinnedTopic]) -> str:
    return ",".join(f"{each.topic}@{each.branch}" for each in topics)


def _counted(spark: Any, options: ReadOptions, topics: Sequence[PinnedTopic]) -> dict[str, list[TagStatistics]]:
    """Return the statistics of some topics, by topic."""
    from pyspark.sql import functions as sql

    texts = {"topic": _text(topics), "startingSeq": "earliest"}
    if options.tag_name is not None:
        texts["versionAsOf"] = f"tag:{options.tag_name}"
    elif options.version is not None:
        texts["versionAsOf"] = str(options.version)
    elif options.as_of is not None:
        texts["timestampAsOf"] = options.as_of
    frame = spark.read.format("seglog").options(**texts).load(options.url)
    seq, moment = sql.col("seq"), sql.col("timestamp")
    numbers = [
        sql.count("*"),
        sql.sum(sql.octet_length("value")),
        sql.min(seq),
        sql.max(seq),
        sql.unix_millis(sql.min(moment)),
        sql.unix_millis(sql.max(moment)),
    ]
    found: dict[str, list[TagStatistics]] = {each.topic: [] for each in topics}
    branches = {each.topic: each.branch for each in topics}
    for name, tag, records, size, first_seq, last_seq, first_ms, last_ms in (
        frame.groupBy("topic", "tag").agg(*numbers).collect()
    ):
        moments = Moment(first_ms), Moment(last_ms)
        found[name].append(TagStatistics(name, branches[name], tag, records, size, first_seq, last_seq, *moments))
    for rows in found.values():
        rows.sort(key=lambda row: (row.tag is not None, row.tag or ""))
    return found


def _key(topic: PinnedTopic) -> str:
    point = topic.point
    return f"{topic.topic}@{topic.branch} {point.vid} {point.lsn} {point.seq or ''}"


def _decoded(found: dict[str, Any]) -> TagStatistics:
    return TagStatistics(**{**found, "first": Moment(found["first"]), "last": Moment(found["last"])})
