"""Test every job with arguments of the wrong type or range.

The job refuses the argument by name, and nothing changes. Spark's session is not checked, because a dry run needs none.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import offload.spark.jobs
from offload.spark.jobs import compact, export, plan_gc, statistics, verify
from seglog import Misuse
from tests.arguments import Row, calls_of, contents, refused

VALUES = tuple(kind for kind in vars(offload.spark.jobs).values() if isinstance(kind, type))
TOPICS = {"remote": "text", "topic": "text", "branch": "text", "dry_run": "bool"}
VERSIONS = {**TOPICS, "version": "version", "as_of": "text"}


def _job(job: Callable[..., object], takes: dict[str, str], **fit: object) -> Row:
    def run(url: str, **given: object) -> object:
        return job(None, **{"remote": url, **given})

    return Row(run, takes, fit, frozenset({"branch", "version", "as_of", "state", "retain_s"}))


CALLS = {
    "compact": _job(
        compact,
        {
            **TOPICS,
            "below_bytes": "positive",
            "least": "several",
            "idle_s": "whole",
            "state": "path",
            "kms_key_id": "text",
        },
    ),
    "export": _job(
        export,
        {**VERSIONS, "target": "text", "skip_lost": "bool", "task_bytes": "positive", "kms_key_id": "text"},
        target="file:///nowhere/at/all",
    ),
    "plan_gc": _job(
        plan_gc,
        {
            "remote": "text",
            "window_s": "whole",
            "grace_s": "whole",
            "retain_s": "whole",
            "state": "path",
            "volumes_of_a_task": "positive",
            "dry_run": "bool",
            "kms_key_id": "text",
        },
    ),
    "statistics": _job(statistics, {**VERSIONS, "state": "path", "topics_at_a_time": "positive", "kms_key_id": "text"}),
    "verify": _job(verify, {**VERSIONS, "state": "path", "task_bytes": "positive", "kms_key_id": "text"}),
}


def test_every_job_has_a_row_for_every_argument() -> None:
    public = calls_of(offload.spark.jobs, values=VALUES)
    assert {name: frozenset(row.takes) | {"spark"} for name, row in CALLS.items()} == public


def test_a_wrong_argument_is_refused_by_its_name_and_nothing_changes(own_url: str, tmp_path: Path) -> None:
    before = contents(tmp_path)
    for name, row in CALLS.items():
        assert refused(own_url, name, row, Misuse) == []
    assert contents(tmp_path) == before
