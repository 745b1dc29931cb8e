"""Upkeep of a remote by Spark, for archives that one machine does not get through.

    from offload.spark.jobs import statistics

    print(statistics(spark, "s3://bucket/acme", "ord*").rows)

Each function takes a session of Spark, a remote and plain arguments. `python -m offload.spark.jobs JOB REMOTE` does the
same from a shell. `offload.spark.jobs.progress` says how a job resumes.
"""

from __future__ import annotations

from offload.spark.jobs.compaction import CompactResult, MergedRange, compact
from offload.spark.jobs.gc_plan import GcPlanResult, PlannedKind, plan_gc
from offload.spark.jobs.object_check import CheckedObject, Condition, VerifyResult, verify
from offload.spark.jobs.parquet_export import ExportedDay, ExportResult, MissingPart, PlannedExport, export
from offload.spark.jobs.tag_statistics import StatisticsResult, TagStatistics, statistics
from offload.spark.jobs.topics import DryRun, TopicToRead

__all__ = [
    "CheckedObject",
    "CompactResult",
    "Condition",
    "DryRun",
    "ExportResult",
    "ExportedDay",
    "GcPlanResult",
    "MergedRange",
    "MissingPart",
    "PlannedExport",
    "PlannedKind",
    "StatisticsResult",
    "TagStatistics",
    "TopicToRead",
    "VerifyResult",
    "compact",
    "export",
    "plan_gc",
    "statistics",
    "verify",
]
