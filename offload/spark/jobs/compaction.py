"""Compaction: small segments become large ones on executors, and each topic gets one commit.

    step                                                                where
    1 plan: runs of small segments of the newest state                  driver
    2 upload a merged segment, and read it back                         executors
    3 publish one commit of kind compact, for all runs of the topic     driver

MERGEJOB-1  The plan, the upload and the read-back are those of `seglog compact`. So no past state changes.
MERGEJOB-2  A volume that a log has written not long ago is left alone: its log merges by itself (`Conflict`).
    A volume that only loads write counts as idle. A log that commits meanwhile loses nothing: a merge is maintenance
    (`catalog.updates`).
MERGEJOB-3  If another commit takes the LSN, the job tries the next LSN. But if the newest state shows a source in
    another way by now, the job gives up the topic, and deletes the objects that it made.
MERGEJOB-4  Each attempt at a task has a segment id of its own. GC deletes the objects of attempts that were lost.
MERGEJOB-5  A state has the merged segments that no commit names yet. The next run publishes them, if they are younger
    than GC's grace and their sources are shown as before.
"""

from __future__ import annotations

import base64
import os
import pickle
import socket
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from catalog import Commit, CommitKind, SegmentRef, SegmentView, Sid, Snapshot, Volumes, encode_commit
from catalog.errors import Diverged, Fenced, Outdated
from offload.load import is_free
from offload.settings import CatalogSettings, OffloadSettings
from offload.spark.jobs.progress import Directory, in_rounds, job_state
from offload.spark.jobs.topics import AtLeastOne, job_options, pinned
from offload.spark.pin import PinnedTopic
from offload.spark.stores import reader_of, store_of
from offload.write.merging import MergeLimits, ranges_of_one_log
from offload.write.publisher import make_due_checkpoint
from offload.write.readback import check_segment
from offload.write.segment_upload import UploadJob, delete_segment, remote_frames, upload_segment
from seglog.base.arguments import WHOLE_MAX, Within, checked
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Conflict
from seglog.files.clock import SystemClock

_ROUNDS = 20
_SETTINGS = OffloadSettings(concurrency=1)
_BELOW_BYTES = 16 * 1024 * 1024
_IDLE_S = 24 * 3600
_GRACE_MS = CatalogSettings().gc_grace_s * 1000


@dataclass(frozen=True, slots=True)
class MergedRange:
    """A run of segments. `lsn` is the commit that replaced them by one; None after a dry run, or if it was given up.

    `outcome` is `planned`, `merged`, `changed` (MERGEJOB-3) or `live` (MERGEJOB-2). A live topic has no segments here.
    """

    topic: str
    branch: str
    outcome: str
    first_seq: int
    last_seq: int
    segments: int
    frame_bytes: int
    lsn: int | None = None


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The runs of all topics. `commits` counts the topics that got one, `resumed` the merges of an earlier run."""

    rows: tuple[MergedRange, ...]
    commits: int
    resumed: int


@dataclass(frozen=True, slots=True)
class _Unit:
    """A merge: what an executor needs for it."""

    topic: PinnedTopic
    views: tuple[SegmentView, ...]
    collected_before_ms: int

    @property
    def key(self) -> str:
        return " ".join(str(view.ref.sid) for view in self.views)

    @property
    def frame_bytes(self) -> int:
        return sum(view.ref.frame_bytes for view in self.views)

    def told(self, outcome: str, lsn: int | None = None) -> MergedRange:
        views = self.views
        spans = views[0].first, views[-1].last, len(views), self.frame_bytes
        return MergedRange(self.topic.topic, self.topic.branch, outcome, *spans, lsn)


@checked
def compact(
    spark: Any,
    remote: str,
    topic: str = "*",
    *,
    branch: str | None = None,
    below_bytes: AtLeastOne = _BELOW_BYTES,
    least: Annotated[int, Within(2, WHOLE_MAX)] = 16,
    idle_s: int = _IDLE_S,
    state: Directory | None = None,
    kms_key_id: str = "",
    dry_run: bool = False,
) -> CompactResult:
    """Merge runs of at least `least` adjacent segments with less than `below_bytes` of frames each.

    A log that committed to a volume less than `idle_s` ago counts as its live writer. If `topic` is one name, that
    raises `Conflict`. Otherwise the result names the topic. Raises `InvalidOption`, `NoSuchTopic`, and what the
    store raises. After an error, the caller repeats the job.
    """
    options = job_options(remote, topic, branch, kms_key_id=kms_key_id)
    facts = {"job": "compact", "remote": remote}
    with pinned(options) as found, job_state(None if dry_run else state, "compact", facts) as known:
        rows: list[MergedRange] = []
        units: list[_Unit] = []
        limits = MergeLimits(below_bytes, _SETTINGS.max_object_bytes, least)
        for each in found.topics:
            snapshot = found.snapshot(each)
            writer = _live_writer(found.remote.volumes, snapshot, idle_s)
            if writer is None:
                ranges = ranges_of_one_log(snapshot, found.remote.reader, limits)
                units += (_Unit(each, tuple(views), snapshot.collected_before_ms) for views in ranges)
            elif options.is_one_topic:
                text = f"{each.topic} is written by the log of {writer} (newest commit: lsn {snapshot.lsn})"
                hint = f"run `seglog compact {each.topic}` in that log's directory"
                raise Conflict(f"{text}; nothing was changed", hint=f"{hint}, or repeat the job when the log is idle")
            else:
                rows.append(MergedRange(each.topic, each.branch, "live", 0, 0, 0, 0))
        if dry_run:
            return CompactResult((*rows, *(unit.told("planned") for unit in units)), 0, 0)
        merged = {unit.key: ref for unit in units if (ref := _on_record(known.done.get(unit.key))) is not None}
        resumed = len(merged)
        wanted = [unit for unit in units if unit.key not in merged]
        for pairs in in_rounds(spark, wanted, partial(_merged, remote, kms_key_id), lambda unit: unit.frame_bytes, 1):
            known.add({unit.key: text for unit, text in pairs})
            merged.update({unit.key: _unpacked(text) for unit, text in pairs})
        for each in found.topics:
            own = [(unit, merged[unit.key]) for unit in units if unit.topic == each]
            rows += _published(found.remote.volumes, own) if own else []
        return CompactResult(tuple(rows), len({(row.topic, row.lsn) for row in rows if row.lsn}), resumed)


def _live_writer(volumes: Volumes, snapshot: Snapshot, idle_s: int) -> str | None:
    """Return the id of the log that writes the volume. None if none does, or if it has been idle (MERGEJOB-2)."""
    if snapshot.lsn == 0 or is_free(snapshot):
        return None
    [newest] = volumes.commits(snapshot.vid, snapshot.lsn, snapshot.lsn)
    commit = newest.commit
    is_merge = commit.kind is CommitKind.COMPACT
    at_ms = snapshot.max_ts_ms if is_merge else max(commit.created_at_ms, snapshot.max_ts_ms)
    return commit.writer_id if at_ms > SystemClock().now_ms() - idle_s * 1000 else None


def _on_record(text: str | None) -> SegmentRef | None:
    """Return a merged segment of an earlier run. None if there is none, or if GC may have deleted it (MERGEJOB-5)."""
    if text is None:
        return None
    ref = _unpacked(text)
    return ref if ref.sid.created_ms > SystemClock().now_ms() - _GRACE_MS // 2 else None


def _unpacked(text: str) -> SegmentRef:
    found: SegmentRef = pickle.loads(base64.b64decode(text))  # noqa: S301 - from our executors, or our own state
    return found


# ---------------------------------------------------------------- the commit


def _published(volumes: Volumes, merges: Sequence[tuple[_Unit, SegmentRef]]) -> list[MergedRange]:
    """Publish one commit for all merges of a topic. If their sources changed, delete the merged segments."""
    vid = merges[0][0].topic.point.vid
    for _ in range(_ROUNDS):
        newest = volumes.snapshot(vid)
        if not _fits(newest, merges):
            break
        commit = _commit(volumes, newest, merges)
        try:
            volumes.publish(vid, commit.lsn, encode_commit(commit)[0])
        except (Fenced, Outdated):
            break
        except Diverged:
            continue
        make_due_checkpoint(volumes, vid, commit.lsn, CatalogSettings().checkpoint_policy, now_ms=commit.created_at_ms)
        return [unit.told("merged", commit.lsn) for unit, _ in merges]
    for _, ref in merges:
        delete_segment(volumes.store, vid, ref.sid)
    return [unit.told("changed") for unit, _ in merges]


def _fits(newest: Snapshot, merges: Sequence[tuple[_Unit, SegmentRef]]) -> bool:
    """Return whether the newest state shows all sources as the merges read them, and takes the merged segments."""
    shown = set(newest.segments)
    is_young = all(ref.sid.created_ms >= newest.collected_before_ms for _, ref in merges)
    return is_young and all(view in shown for unit, _ in merges for view in unit.views)


def _commit(volumes: Volumes, newest: Snapshot, merges: Sequence[tuple[_Unit, SegmentRef]]) -> Commit:
    [last] = volumes.commits(newest.vid, newest.lsn, newest.lsn)
    return Commit(
        vid=newest.vid,
        lsn=newest.lsn + 1,
        kind=CommitKind.COMPACT,
        bounds=newest.bounds,
        parent_hash=newest.head_hash,
        nonce=os.urandom(16),
        created_at_ms=SystemClock().now_ms(),
        writer_id=socket.gethostname(),
        epoch=newest.epoch,
        at_seq=last.commit.at_seq,
        at_ts_ms=last.commit.at_ts_ms,
        message="merged by a job of Spark",
        segments=tuple(ref for _, ref in merges),
        removed_sids=tuple(view.ref.sid for unit, _ in merges for view in unit.views),
        form=newest.form,
    )


# ---------------------------------------------------------------- on executors


def _merged(url: str, kms_key_id: str, unit: _Unit) -> str:
    """Upload the merged segment, read it back, and return it, packed."""
    store = store_of(url, kms_key_id)
    point, views = unit.topic.point, unit.views
    sid = Sid.new(max(SystemClock().now_ms(), unit.collected_before_ms))
    job = UploadJob(
        unit.topic.topic, point.vid, sid, views[0].first, views[-1].last, views[0].ref.codec, _SETTINGS, views
    )
    try:
        segment = upload_segment(store, job, remote_frames(reader_of(url), views), on_upload_id=_forget)
        check_segment(store, point.vid, segment)
    except BaseException:
        delete_segment(store, point.vid, sid)
        raise
    return base64.b64encode(pickle.dumps(segment)).decode("ascii")


def _forget(_upload_id: str) -> None:
    """Keep no upload on record: GC deletes what a killed executor leaves."""
