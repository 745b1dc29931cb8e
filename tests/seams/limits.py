"""Limits that a test lowers, because a test cannot reach the real ones in reasonable time."""

from __future__ import annotations

from enum import Enum

import pytest

__all__ = ["Limit", "set_limit"]


class Limit(Enum):
    """A constant of the product. The value is its module and its name."""

    APPEND_GROUP_BYTES = "seglog.wal.group_commit._GROUP_MAX_BYTES"
    CLOSE_PATIENCE_S = "seglog.log._PATIENCE_S"
    DURABLE_DIRECTORIES = "catalog.objects.local._DURABLE_MAX"
    DELETES_BY_TAG = "seglog.writing.changes._PENDING_MAX"
    FRAMES_READ_ONE_BY_ONE = "seglog.wal.scan._FEW"
    KEYS = "seglog.engine.known_appends.KEYS_MAX"
    KEEP_ALIVE_S = "offload.daemon.http.followers.KEEP_ALIVE_S"
    HEAD_OF_FOLLOWED_BYTES = "offload.operations.growing_file._MARK_BYTES"
    LAMINARMQ_S = "offload.daemon.laminarmq._LIMIT_S"
    LAMINARMQ_AT_ONCE = "offload.daemon.laminarmq._AT_ONCE"
    LINES_IN_A_BATCH = "offload.operations.record_text._BATCH_LINES"
    LOST_RECORDS_IN_TAIL = "seglog.writing.append._LOST_IN_TAIL_MAX"
    MANIFEST_FORMAT = "seglog.wal.manifest._FORMAT_OF_FORM_2"
    SEGMENTS_IN_CHECKPOINT_BYTES = "catalog.checkpointer._INLINE_BYTES"
    PRODUCERS = "seglog.engine.known_appends.PRODUCERS_MAX"
    PROGRESS_AFTER_S = "offload.cli.execution._AFTER_S"
    RECENT_SIDS = "catalog.gc.sid_set._RECENT"
    PART_OF_A_CHECK = "catalog.objects.conformance._PART"
    READ_OF_LINES_BYTES = "offload.operations.record_text._READ_BYTES"
    RECORD_OVERHEAD_BYTES = "offload.archive._FRAME_OVERHEAD_BYTES"
    STREAM_ENTRIES_OUTDATED = "seglog.delivery.keyed_topic._OUTDATED_MAX"
    EVENTS_OF_A_SNAPSHOT = "seglog.delivery.queue_states._SNAPSHOT_EVENTS"
    CURSOR_RECORD_BYTES = "seglog.delivery.cursor.RECORD_MAX_BYTES"
    STREAMS_KEPT = "offload.daemon.streams.live._KEPT"
    TEXT_IN_A_LIST_BYTES = "offload.operations.record_text._FEW_BYTES"
    S3_FIRST_BACKOFF = "catalog.objects.s3_reads._BACKOFF_FIRST"


def set_limit(patch: pytest.MonkeyPatch, limit: Limit, value: object) -> None:
    """Set the constant until the test ends."""
    patch.setattr(limit.value, value)
