"""Deep verify: every byte and every record of the objects that a version names, checked on executors.

DEEP-1  An index object is good if it has the length and the hash in the commit, and its trailer decodes.
    A data object is good if it has the length and the hash in the commit. Each record in it must match its own
    checksum, and there must be as many as the commit says.
DEEP-2  An object is lost or damaged only if two checks in a row found that. A store may give a damaged answer once.
DEEP-3  An error of the store is never a finding. It ends the job.
DEEP-4  A run with a state skips the segments that an earlier run found good. It checks lost and damaged ones again.
DEEP-5  If GC passes the version during the job, lost objects prove nothing: `HistoryCollected`.

The data object is read twice. The pass over the records tells the place of a damage. The hash covers the bytes between
the chunks.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from catalog import errors as catalog_errors
from catalog.errors import HistoryCollected, InvalidObject, NoSuchObject
from catalog.format import keys
from catalog.format.commit import SegmentView
from catalog.format.keys import Key
from catalog.gc.scrub import check_length
from catalog.refs.kept_points import passed_boundary
from offload import errors as offload_errors
from offload.read.cold_reader import ColdReader
from offload.spark.jobs.progress import TASK_BYTES, Directory, in_rounds, job_state
from offload.spark.jobs.topics import AtLeastOne, DryRun, PinnedRemote, dry_run_of, job_options, pinned
from offload.spark.stores import reader_of, store_of
from offload.write.readback import check_data, check_index
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Corrupt


class Condition(enum.StrEnum):
    GOOD = "good"
    LOST = "lost"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class CheckedObject:
    """An object of a segment. `offset` is the place of a damage in it, if that is known.

    `records` counts the live records that were checked. It is 0 for an index object.
    """

    topic: str
    key: str
    state: str
    records: int
    bytes: int
    offset: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """All objects, ascending by topic and seq, and their counts.

    `resumed` counts the objects that an earlier run checked.
    """

    rows: tuple[CheckedObject, ...]
    good: int
    lost: int
    damaged: int
    records: int
    bytes: int
    resumed: int

    @property
    def findings(self) -> tuple[CheckedObject, ...]:
        """The objects that are not good."""
        return tuple(row for row in self.rows if row.state != Condition.GOOD)


_Unit = tuple[str, SegmentView]


@checked
def verify(
    spark: Any,
    remote: str,
    topic: str = "*",
    *,
    branch: str | None = None,
    version: str | int | None = None,
    as_of: str | None = None,
    state: Directory | None = None,
    task_bytes: AtLeastOne = TASK_BYTES,
    kms_key_id: str = "",
    dry_run: bool = False,
) -> VerifyResult | DryRun:
    """Check every object of the topics' versions, to the record. Damage raises nothing: the result has it.

    The arguments choose topics and versions as those of `statistics` do. Raises `InvalidOption`, `NoSuchTopic`,
    `HistoryCollected` (DEEP-5), and what the store raises.
    """
    options = job_options(remote, topic, branch, version, as_of, kms_key_id)
    if dry_run:
        return dry_run_of(options)
    with pinned(options) as found, job_state(state, "verify", {"job": "verify", "remote": remote}) as known:
        units = _units(found)
        done = {sid: row for sid, row in known.done.items() if sid in units and _is_good(row)}
        wanted = [unit for sid, unit in units.items() if sid not in done]
        for pairs in in_rounds(spark, wanted, partial(_checked, remote), _size_bytes, task_bytes):
            checked = {str(view.ref.sid): [asdict(each) for each in row] for (_, view), row in pairs}
            known.add(checked)
        rows = [CheckedObject(**each) for sid in units for each in known.done[sid]]
        result = _result(rows, resumed=2 * len(done))
        if result.lost:
            _check_kept(found)
        return result


def _units(pinned_remote: PinnedRemote) -> dict[str, _Unit]:
    """Return the segments of all topics, each once, by id. The check is of whole segments, whatever a version shows."""
    found: dict[str, _Unit] = {}
    for topic in pinned_remote.topics:
        for view in pinned_remote.snapshot(topic).segments:
            whole = replace(view, first=view.ref.first_seq, last=view.ref.last_seq, deleted=None)
            found.setdefault(str(view.ref.sid), (topic.topic, whole))
    return found


def _size_bytes(unit: _Unit) -> int:
    return 2 * unit[1].ref.data_length


def _is_good(row: Iterable[Mapping[str, Any]]) -> bool:
    return all(each["state"] == Condition.GOOD for each in row)


def _result(rows: list[CheckedObject], resumed: int) -> VerifyResult:
    good, lost, damaged = (sum(row.state == each for row in rows) for each in Condition)
    return VerifyResult(
        tuple(rows), good, lost, damaged, sum(row.records for row in rows), sum(row.bytes for row in rows), resumed
    )


def _check_kept(found: PinnedRemote) -> None:
    for topic in found.topics:
        boundary = passed_boundary(found.remote.volumes, topic.point)
        if boundary is not None:
            raise HistoryCollected(topic.point.vid, topic.point.lsn, boundary)


# ---------------------------------------------------------------- on executors


def _checked(url: str, unit: _Unit) -> tuple[CheckedObject, CheckedObject]:
    """Return what was found of the index object and of the data object."""
    found = _once(url, *unit)
    return found if _is_good(map(asdict, found)) else _once(url, *unit)


def _once(url: str, topic: str, view: SegmentView) -> tuple[CheckedObject, CheckedObject]:
    store, ref = store_of(url), view.ref
    check = partial(_object, url, topic)

    def index_is_good() -> int:
        check_index(store, view.vid, ref)
        return 0

    index = check(keys.index_key(view.vid, ref.sid), ref.index_length, index_is_good)

    def data_is_good() -> int:
        count = _count_records(reader_of(url), view) if index.state == Condition.GOOD else 0
        check_data(store, view.vid, ref)
        return count

    return index, check(keys.data_key(view.vid, ref.sid), ref.data_length, data_is_good)


def _object(url: str, topic: str, key: Key, length: int, check: Callable[[], int]) -> CheckedObject:
    """Return what was found of one object. `check` raises damage, and returns the number of records."""
    try:
        check_length(store_of(url), key, length)
        return CheckedObject(topic, key, Condition.GOOD, check(), length)
    except NoSuchObject:
        return CheckedObject(topic, key, Condition.LOST, 0, 0, reason="it is not there")
    except (catalog_errors.FormatUnsupported, offload_errors.FormatUnsupported):
        raise
    except Corrupt as damage:
        offset, reason = getattr(damage, "offset", None), getattr(damage, "reason", str(damage))
        return CheckedObject(topic, key, Condition.DAMAGED, 0, length, offset, reason)


def _count_records(reader: ColdReader, view: SegmentView) -> int:
    """Check each record of a segment, and return how many are live. Raises `InvalidChunk` and `InvalidObject`."""
    count = sum(1 for _ in reader.segment_records(view, view.first, view.last))
    if count != view.ref.live_records:
        key = keys.data_key(view.vid, view.ref.sid)
        raise InvalidObject(key, f"it has {count} live records, its commit says {view.ref.live_records}")
    return count
