"""A check of a whole data directory, which reads the disk alone and changes nothing: `seglog verify`.

    manifests   every manifest
    WAL         every frame of every file from the manifest's on, also the frames that segments have already
    segments    every entry and every frame of the segments that the manifest counts, and that they agree. No segment
                may be missing in between. Segments in the warm store are checked too, if it is named
    recovery    recovery is tried over a port that changes nothing. If all of the above is sound, that checks how the
                files fit together

VERIFY-1  The check reads under a shared lock. Others may verify meanwhile, and no process may open the log for writing.
    If the log is open, the check raises `DirectoryInUse`, because the writer's changes would look like damage.
VERIFY-2  If there is no LOCK, the check takes no lock and makes none: no process has ever opened that copy. So the
    check works on read-only media.
VERIFY-3  A torn tail, or what a crash left of a checkpoint, is a note and no damage. Recovery puts it in order without
    loss.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import replace
from pathlib import Path

from seglog.base.arguments import checked
from seglog.engine.state import TopicState
from seglog.errors import FormatUnsupported, NotADataDirectory, SeglogError
from seglog.files.directory import SharedLock, load_settings
from seglog.files.file_system import Files, OpenFile, OsFiles, ReadOnlyFiles
from seglog.maintenance.removal import segment_names
from seglog.segments.rewrite import NEW, settle_rewrite
from seglog.segments.segment import SegmentInfo
from seglog.startup.opening import configured_warm_stores, is_data_directory, missing_folder, missing_part
from seglog.startup.recovery import recover
from seglog.startup.segment_check import check_parts, check_segment
from seglog.startup.wal_check import check_wal
from seglog.tiers.segment_store import Part, SegmentStores
from seglog.tiers.warm_stores import WarmStores, store_errors
from seglog.values.config import LogSettings
from seglog.values.findings import Checked, Damage, Findings, Report
from seglog.values.layout import Layout, number_in
from seglog.wal.manifest import ActiveMeta, LogManifest, TopicMeta, decode_manifest, numbers


@checked
def verify(
    path: str | os.PathLike[str],
    *,
    files: Files | None = None,
    settings: LogSettings | None = None,
    warm_stores: SegmentStores | None = None,
) -> Report:
    """Read every byte that counts in the data directory at `path`, and report each damage with its place.

    `settings` and `warm_stores` are those of `seglog.open`. They tell where relocated segments are. If a store hangs,
    the check waits for it.
    Raises `NotADataDirectory`, `DirectoryInUse`, `InvalidSetting`. Raises `FormatUnsupported` for a file of another
    version.
    """
    port = ReadOnlyFiles(OsFiles() if files is None else files)
    layout = Layout(Path(path).absolute())
    if not is_data_directory(port, layout) and missing_part(port, layout) is None:
        raise NotADataDirectory(layout.root)
    settings = load_settings(layout.settings) if settings is None else settings
    stores = configured_warm_stores(port, layout, settings, warm_stores)
    if stores is not None:
        stores.check_owners()
    with SharedLock(port, layout.lock):
        findings = Findings()
        missing = missing_folder(port, layout)
        if missing is not None:
            return Report(layout.root, (), (Damage(missing, 0, "the folder is missing"),), ())
        manifest = _check_manifests(port, layout, findings)
        check_wal(port, layout, manifest, findings)
        states, failure = _recovered(ReadOnlyFiles(port.inner), layout)  # `port` keeps what it would have changed
        _check_topics(port, layout, _expected(manifest, states), stores, findings)
        if not findings.damages and failure is not None:
            with findings.reading(layout.root):
                raise failure
    return Report(layout.root, tuple(findings.checked), tuple(findings.damages), tuple(findings.notes))


def _recovered(files: Files, layout: Layout) -> tuple[dict[int, TopicState], Exception | None]:
    """Return the topics by id as recovery finds them, or its error."""
    try:
        return {state.topic_id: state for state in recover(files, layout).topics.values()}, None
    except (SeglogError, OSError) as error:
        return {}, error


def _expected(manifest: LogManifest | None, states: dict[int, TopicState]) -> LogManifest | None:
    """Return the manifest without the deleted flags that an undelete, which only the WAL has, may have removed."""
    undeleted = {topic_id: state.undeleted for topic_id, state in states.items() if state.undeleted is not None}
    if manifest is None or not undeleted:
        return manifest

    def least(topic: TopicMeta, info: SegmentInfo) -> SegmentInfo:
        gone = len(undeleted[topic.topic_id].within(info.first_seq, info.last_seq))
        return info._replace(dead_records=max(0, info.dead_records - gone))

    def least_active(topic: TopicMeta, active: ActiveMeta) -> ActiveMeta:
        gone = len(undeleted[topic.topic_id].within(active.first_seq, active.first_seq + active.records - 1))
        return replace(active, dead_records=max(0, active.dead_records - gone))

    topics = (
        replace(
            topic,
            sealed=tuple(least(topic, info) for info in topic.sealed),
            active=topic.active and least_active(topic, topic.active),
        )
        if topic.topic_id in undeleted
        else topic
        for topic in manifest.topics
    )
    return replace(manifest, topics=tuple(topics))


def _check_manifests(files: Files, layout: Layout, findings: Findings) -> LogManifest | None:
    """Check all manifests, and return the newest one, which counts. None: it is damaged."""
    newest: LogManifest | None = None
    present = numbers(files, layout)
    if not present:
        findings.damage(layout.meta, 0, "there is no manifest")
    for number in present:
        newest = None
        path = layout.manifest(number)
        with findings.reading(path):
            file = OpenFile(files, path)
            body = file.read(file.size(), 0)
            try:
                newest = decode_manifest(body, path)
            except FormatUnsupported:
                if number == present[-1]:
                    raise
                continue
            findings.checked.append(Checked("snapshot", path, 1, len(body)))
    return newest


def _check_topics(
    files: Files, layout: Layout, manifest: LogManifest | None, stores: WarmStores | None, findings: Findings
) -> None:
    """Check the segments of all topics. Without a manifest, check each segment as a sealed one."""
    metas = {} if manifest is None else {topic.topic_id: topic for topic in manifest.topics}
    with findings.reading(layout.topics):
        folders = (number_in("topic", name) for name in files.list_dir(layout.topics))
        segments = {
            topic_id: _segments(files, layout, topic_id, metas.get(topic_id), findings)
            for topic_id in folders
            if topic_id is not None
        }
        for topic_id in sorted({*metas, *segments}):
            firsts = segments.get(topic_id, [])
            if topic_id in metas:
                _check_topic(files, layout, metas[topic_id], firsts, stores, findings)
            elif manifest is None:
                for first in firsts:
                    _check_segment(files, layout, topic_id, first, None, findings)
            else:
                findings.notes += [f"{layout.data(topic_id, first)}: of no topic in the manifest" for first in firsts]


def _check_topic(
    files: Files, layout: Layout, meta: TopicMeta, firsts: list[int], stores: WarmStores | None, findings: Findings
) -> None:
    """Check the segments of one topic.

    Their seqs must have no gap from the hot floor to the end that the manifest gives.
    """
    active = meta.active
    end = meta.sealed_seq if active is None else active.first_seq + active.records - 1
    last = end if active is None else active.first_seq
    warm = {info.first_seq: info for info in meta.warm}
    counted = [first for first in firsts if meta.hot_floor <= first <= last and first not in warm]
    if stores is not None:
        _note_unknown(stores, meta, counted, findings)
    if warm and stores is None:
        findings.notes.append(
            f"{len(warm)} segments of topic {meta.name} are in a warm store that is not named: not checked"
        )
    for first in firsts:
        if first not in counted:
            path = layout.data(meta.topic_id, first)
            findings.notes.append(f"{path}: the manifest does not count it; recovery removes it")
    expected: int | None = meta.hot_floor
    for first in sorted([*counted, *warm]):
        if expected is not None and first != expected:
            reason = f"records {expected} to {first - 1} should be here" if expected < first else "two segments overlap"
            findings.damage(layout.data(meta.topic_id, min(expected, first)), 0, reason)
        if first in warm:
            expected = _check_relocated(stores, meta, warm[first], findings)
        else:
            expected = _check_segment(files, layout, meta.topic_id, first, meta, findings)
    if expected is not None and expected != end + 1:
        findings.damage(layout.data(meta.topic_id, expected), 0, f"the manifest counts records up to {end}")


def _check_segment(
    files: Files, layout: Layout, topic_id: int, first: int, meta: TopicMeta | None, findings: Findings
) -> int | None:
    """Check a hot segment, and return the seq behind it. None: the segment is damaged."""
    before, info = len(findings.damages), None if meta is None else _known(meta, first)
    records, size = check_segment(files, layout, topic_id, first, info, findings)
    name = None if meta is None else meta.name
    findings.checked.append(Checked("segment", layout.data(topic_id, first), records, size, name))
    return first + records if len(findings.damages) == before else None


def _known(meta: TopicMeta, first: int) -> SegmentInfo | ActiveMeta | None:
    """Return what the manifest says of the segment that begins at `first`. None: it does not name one."""
    if meta.active is not None and meta.active.first_seq == first:
        return meta.active
    at = bisect_left(meta.sealed, first, key=lambda info: info.first_seq)
    return meta.sealed[at] if at < len(meta.sealed) and meta.sealed[at].first_seq == first else None


def _note_unknown(stores: WarmStores, meta: TopicMeta, hot: list[int], findings: Findings) -> None:
    """Note each segment in the warm store that the manifest does not count.

    A copy of a hot segment gets no note: it is on its way to the warm store.
    """
    counted = {*hot, *(info.first_seq for info in meta.warm)}
    path = stores.part(meta.topic_id, meta.first_seq, Part.DATA).path.parent
    with findings.reading(path), store_errors(path):
        for segment in stores.store(meta.topic_id).list():
            if segment not in counted:
                findings.notes.append(f"{path}: the manifest does not count the segment that begins with seq {segment}")


def _check_relocated(stores: WarmStores | None, meta: TopicMeta, info: SegmentInfo, findings: Findings) -> int:
    """Check a relocated segment, and return the seq behind it, as the manifest gives it."""
    behind = info.last_seq + 1
    if stores is None:
        return behind
    before = len(findings.damages)
    idx, data = (stores.part(meta.topic_id, info.first_seq, part) for part in (Part.IDX, Part.DATA))
    records, size = check_parts(
        lambda: idx, lambda: data, (idx.path, data.path), meta.topic_id, info.first_seq, info, findings
    )
    if len(findings.damages) == before:
        with findings.reading(idx.path):
            stores.segment(meta.topic_id, info)
    findings.checked.append(Checked("segment", data.path, records, size, meta.name))
    return behind


def _segments(files: Files, layout: Layout, topic_id: int, meta: TopicMeta | None, findings: Findings) -> list[int]:
    """Return the first seqs of the segments with a .data or an .idx, ascending.

    A rewrite that was cut short is ended first.
    """
    for kind, first_seq in segment_names(files, layout, topic_id):
        if kind in NEW:
            findings.notes.append(f"{layout.part(kind, topic_id, first_seq)}: a rewrite that recovery ends")
            is_active = meta is not None and meta.active is not None and meta.active.first_seq == first_seq
            settle_rewrite(files, layout, topic_id, first_seq, is_sealed=not is_active)
    names = files.list_dir(layout.topic(topic_id))
    numbers = {number_in(kind, name) for name in names for kind in ("data", "idx")}
    return sorted(number for number in numbers if number is not None)
