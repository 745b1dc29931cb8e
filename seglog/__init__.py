"""The log on the local disk: topics of records, a write-ahead log for new records, sealed segments for older ones.

    import seglog

    with seglog.open("data") as log:
        seqs = log.topic("orders").append([b"one", b"two"], tag="eu")
        for record in log.topic("orders").read(start=1):
            print(record.seq, record.value)

The log knows nothing of object storage. A `ColdTier` may be attached for records that have left the disk.

The package imports a name when it is first used. A command that the daemon serves needs records and errors, and no
numpy.
"""

from __future__ import annotations

from seglog.base.shadowing import shadowing_text

TYPE_CHECKING = False
"""True for a type checker, as in `typing`, whose import takes longer than that of this module."""

if TYPE_CHECKING:
    from seglog import errors
    from seglog.client.client import connect
    from seglog.errors import (
        AppendsHeld,
        AppendUnknown,
        BatchForgotten,
        BatchReused,
        BranchExists,
        CalledWithin,
        ColdTierRequired,
        ConcurrentModification,
        Conflict,
        Corrupt,
        DaemonError,
        DaemonGone,
        DeleteNotUndone,
        DirectoryInUse,
        DirectoryNotWritable,
        DiskFull,
        Evicted,
        FileCorrupt,
        FormatUnsupported,
        HeadMoved,
        InvalidArgument,
        InvalidEntry,
        InvalidFrame,
        InvalidLabel,
        InvalidName,
        InvalidSetting,
        InvalidTarget,
        KeyReused,
        LogClosed,
        Missing,
        Misuse,
        NoSuchBranch,
        NoSuchSegment,
        NoSuchTag,
        NoSuchTopic,
        NotADataDirectory,
        NotInstalled,
        NotTruncatable,
        OffsetOverflow,
        OpenedByParent,
        OtherIncarnation,
        OtherLoop,
        OutOfWindow,
        ProducerFenced,
        ProducerGap,
        ReadOnly,
        RecordTooLarge,
        SameFile,
        SeglogError,
        SegmentCut,
        SeqOutOfRange,
        TooManyKeys,
        TooManyOpenFiles,
        TopicExists,
        TopicFull,
        Truncated,
        Unavailable,
        UpgradeNeeded,
        ViewOutdated,
        WarmDirectoryNotApart,
        WarmDirectoryTaken,
        WarmStoreFailed,
        WarmStoreRequired,
        WriterPoisoned,
        WrittenElsewhere,
    )
    from seglog.files.clock import Clock, SystemClock
    from seglog.files.directory import default_toml, load_settings, read_sections, write_default
    from seglog.files.file_system import Files, OsFiles, replace_atomically
    from seglog.format.record_arrays import RecordArrays
    from seglog.log import Log, open
    from seglog.maintenance.checkpoint_plan import Retention
    from seglog.segments.segment import SegmentInfo
    from seglog.startup.verification import verify
    from seglog.tiers.cold_tier import ColdTier
    from seglog.topic import Topic
    from seglog.values.arrow import arrow_schema
    from seglog.values.config import DISCARDS, DURABILITIES, SETTINGS_FILE, LogSettings, TopicConfig
    from seglog.values.deletes import DeleteOp, TruncateOp
    from seglog.values.findings import Checked, Damage, Report
    from seglog.values.last_deletes import Undeleted
    from seglog.values.producer import Appended, Producer, ProducerBatch
    from seglog.values.protocols import (
        AnyArchive,
        AnyAsyncLog,
        AnyAsyncTopic,
        AnyBranch,
        AnyBranches,
        AnyLog,
        AnyOffloaded,
        AnyRestored,
        AnyTopic,
        AppendArguments,
        Bounds,
        DeleteArguments,
        FollowArguments,
        LogAppendArguments,
        ReadArguments,
        Removed,
        Selection,
    )
    from seglog.values.record import Gap, Record
    from seglog.values.seq_set import SeqSet
    from seglog.values.written_elsewhere import Elsewhere

__all__ = [
    "DISCARDS",
    "DURABILITIES",
    "SETTINGS_FILE",
    "AnyArchive",
    "AnyAsyncLog",
    "AnyAsyncTopic",
    "AnyBranch",
    "AnyBranches",
    "AnyLog",
    "AnyOffloaded",
    "AnyRestored",
    "AnyTopic",
    "AppendArguments",
    "AppendUnknown",
    "Appended",
    "AppendsHeld",
    "BatchForgotten",
    "BatchReused",
    "Bounds",
    "BranchExists",
    "CalledWithin",
    "Checked",
    "Clock",
    "ColdTier",
    "ColdTierRequired",
    "ConcurrentModification",
    "Conflict",
    "Corrupt",
    "DaemonError",
    "DaemonGone",
    "Damage",
    "DeleteArguments",
    "DeleteNotUndone",
    "DeleteOp",
    "DirectoryInUse",
    "DirectoryNotWritable",
    "DiskFull",
    "Elsewhere",
    "Evicted",
    "FileCorrupt",
    "Files",
    "FollowArguments",
    "FormatUnsupported",
    "Gap",
    "HeadMoved",
    "InvalidArgument",
    "InvalidEntry",
    "InvalidFrame",
    "InvalidLabel",
    "InvalidName",
    "InvalidSetting",
    "InvalidTarget",
    "KeyReused",
    "Log",
    "LogAppendArguments",
    "LogClosed",
    "LogSettings",
    "Missing",
    "Misuse",
    "NoSuchBranch",
    "NoSuchSegment",
    "NoSuchTag",
    "NoSuchTopic",
    "NotADataDirectory",
    "NotInstalled",
    "NotTruncatable",
    "OffsetOverflow",
    "OpenedByParent",
    "OsFiles",
    "OtherIncarnation",
    "OtherLoop",
    "OutOfWindow",
    "Producer",
    "ProducerBatch",
    "ProducerFenced",
    "ProducerGap",
    "ReadArguments",
    "ReadOnly",
    "Record",
    "RecordArrays",
    "RecordTooLarge",
    "Removed",
    "Report",
    "Retention",
    "SameFile",
    "SeglogError",
    "SegmentCut",
    "SegmentInfo",
    "Selection",
    "SeqOutOfRange",
    "SeqSet",
    "SystemClock",
    "TooManyKeys",
    "TooManyOpenFiles",
    "Topic",
    "TopicConfig",
    "TopicExists",
    "TopicFull",
    "TruncateOp",
    "Truncated",
    "Unavailable",
    "Undeleted",
    "UpgradeNeeded",
    "ViewOutdated",
    "WarmDirectoryNotApart",
    "WarmDirectoryTaken",
    "WarmStoreFailed",
    "WarmStoreRequired",
    "WriterPoisoned",
    "WrittenElsewhere",
    "arrow_schema",
    "connect",
    "default_toml",
    "errors",
    "load_settings",
    "open",
    "read_sections",
    "replace_atomically",
    "verify",
    "write_default",
]

_NAMES = {
    "seglog.client.client": ("connect",),
    "seglog.files.clock": ("Clock", "SystemClock"),
    "seglog.files.directory": ("default_toml", "load_settings", "read_sections", "write_default"),
    "seglog.files.file_system": ("Files", "OsFiles", "replace_atomically"),
    "seglog.format.record_arrays": ("RecordArrays",),
    "seglog.log": ("Log", "open"),
    "seglog.maintenance.checkpoint_plan": ("Retention",),
    "seglog.segments.segment": ("SegmentInfo",),
    "seglog.startup.verification": ("verify",),
    "seglog.tiers.cold_tier": ("ColdTier",),
    "seglog.topic": ("Topic",),
    "seglog.values.arrow": ("arrow_schema",),
    "seglog.values.config": ("DISCARDS", "DURABILITIES", "SETTINGS_FILE", "LogSettings", "TopicConfig"),
    "seglog.values.deletes": ("DeleteOp", "TruncateOp"),
    "seglog.values.written_elsewhere": ("Elsewhere",),
    "seglog.values.findings": ("Checked", "Damage", "Report"),
    "seglog.values.last_deletes": ("Undeleted",),
    "seglog.values.producer": ("Appended", "Producer", "ProducerBatch"),
    "seglog.values.protocols": (
        "AnyArchive", "AnyAsyncLog", "AnyAsyncTopic", "AnyBranch", "AnyBranches", "AnyLog", "AnyOffloaded",
        "AnyRestored", "AnyTopic", "AppendArguments", "Bounds", "DeleteArguments", "FollowArguments",
        "LogAppendArguments", "ReadArguments", "Removed", "Selection",
    ),
    "seglog.values.record": ("Gap", "Record"),
    "seglog.values.seq_set": ("SeqSet",),
}  # fmt: skip
"""The names of each module, without the errors."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

if _foreign := shadowing_text("catalog", "offload"):
    from warnings import warn

    warn(f"{_foreign}. The log itself needs neither.", RuntimeWarning, stacklevel=2)

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'seglog' has no attribute {name!r}")
        from importlib import import_module

        home = import_module(_HOMES.get(name, "seglog.errors"))
        attribute = home if name == "errors" else getattr(home, name)
        globals()[name] = attribute
        return attribute

    def __dir__():
        return sorted({*globals(), *__all__})
