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
    from seglog import errors as errors
    from seglog.client.client import connect as connect
    from seglog.errors import (
        AppendsHeld as AppendsHeld,
        AppendUnknown as AppendUnknown,
        BatchForgotten as BatchForgotten,
        BatchReused as BatchReused,
        BranchExists as BranchExists,
        CalledWithin as CalledWithin,
        ColdTierRequired as ColdTierRequired,
        ConcurrentModification as ConcurrentModification,
        Conflict as Conflict,
        Corrupt as Corrupt,
        DaemonError as DaemonError,
        DaemonGone as DaemonGone,
        DeleteNotUndone as DeleteNotUndone,
        DirectoryInUse as DirectoryInUse,
        DirectoryNotWritable as DirectoryNotWritable,
        DiskFull as DiskFull,
        Evicted as Evicted,
        FileCorrupt as FileCorrupt,
        FormatUnsupported as FormatUnsupported,
        HeadMoved as HeadMoved,
        InvalidArgument as InvalidArgument,
        InvalidEntry as InvalidEntry,
        InvalidFrame as InvalidFrame,
        InvalidLabel as InvalidLabel,
        InvalidName as InvalidName,
        InvalidSetting as InvalidSetting,
        InvalidTarget as InvalidTarget,
        KeyReused as KeyReused,
        LeaseLost as LeaseLost,
        LogClosed as LogClosed,
        Missing as Missing,
        Misuse as Misuse,
        NoSuchBranch as NoSuchBranch,
        NoSuchSegment as NoSuchSegment,
        NoSuchTag as NoSuchTag,
        NoSuchTopic as NoSuchTopic,
        NotADataDirectory as NotADataDirectory,
        NotInstalled as NotInstalled,
        NotTruncatable as NotTruncatable,
        OffsetOverflow as OffsetOverflow,
        OpenedByParent as OpenedByParent,
        OtherIncarnation as OtherIncarnation,
        OtherLoop as OtherLoop,
        OutOfWindow as OutOfWindow,
        ProducerFenced as ProducerFenced,
        ProducerGap as ProducerGap,
        ReadOnly as ReadOnly,
        RecordTooLarge as RecordTooLarge,
        SameFile as SameFile,
        SeglogError as SeglogError,
        SegmentCut as SegmentCut,
        SeqOutOfRange as SeqOutOfRange,
        TooManyKeys as TooManyKeys,
        TooManyOpenFiles as TooManyOpenFiles,
        TopicExists as TopicExists,
        TopicFull as TopicFull,
        Truncated as Truncated,
        Unavailable as Unavailable,
        UpgradeNeeded as UpgradeNeeded,
        ViewOutdated as ViewOutdated,
        WarmDirectoryNotApart as WarmDirectoryNotApart,
        WarmDirectoryTaken as WarmDirectoryTaken,
        WarmStoreFailed as WarmStoreFailed,
        WarmStoreRequired as WarmStoreRequired,
        WriterPoisoned as WriterPoisoned,
        WrittenElsewhere as WrittenElsewhere,
    )
    from seglog.files.clock import Clock as Clock, SystemClock as SystemClock
    from seglog.files.directory import (
        default_toml as default_toml,
        load_settings as load_settings,
        read_sections as read_sections,
        write_default as write_default,
    )
    from seglog.files.file_system import Files as Files, OsFiles as OsFiles, replace_atomically as replace_atomically
    from seglog.format.record_arrays import RecordArrays as RecordArrays
    from seglog.log import Log as Log, open as open
    from seglog.maintenance.checkpoint_plan import Retention as Retention
    from seglog.segments.segment import SegmentInfo as SegmentInfo
    from seglog.startup.verification import verify as verify
    from seglog.tiers.cold_tier import ColdTier as ColdTier
    from seglog.topic import Topic as Topic
    from seglog.values.arrow import arrow_schema as arrow_schema
    from seglog.values.config import (
        DISCARDS as DISCARDS,
        DURABILITIES as DURABILITIES,
        SETTINGS_FILE as SETTINGS_FILE,
        LogSettings as LogSettings,
        TopicConfig as TopicConfig,
    )
    from seglog.values.deletes import DeleteOp as DeleteOp, TruncateOp as TruncateOp
    from seglog.values.written_elsewhere import Elsewhere as Elsewhere
    from seglog.values.findings import Checked as Checked, Damage as Damage, Report as Report
    from seglog.values.last_deletes import Undeleted as Undeleted
    from seglog.values.producer import Appended as Appended, Producer as Producer, ProducerBatch as ProducerBatch
    from seglog.values.protocols import (
        AnyArchive as AnyArchive,
        AnyAsyncLog as AnyAsyncLog,
        AnyAsyncTopic as AnyAsyncTopic,
        AnyBranch as AnyBranch,
        AnyBranches as AnyBranches,
        AnyLog as AnyLog,
        AnyOffloaded as AnyOffloaded,
        AnyRestored as AnyRestored,
        AnyTopic as AnyTopic,
        AppendArguments as AppendArguments,
        Bounds as Bounds,
        DeleteArguments as DeleteArguments,
        FollowArguments as FollowArguments,
        LogAppendArguments as LogAppendArguments,
        ReadArguments as ReadArguments,
        Removed as Removed,
        Selection as Selection,
    )
    from seglog.values.record import Gap as Gap, Record as Record
    from seglog.values.seq_set import SeqSet as SeqSet

_NAMES = {
    "seglog.client.client": ("connect",),
    "seglog.errors": (
        "AppendUnknown", "AppendsHeld", "BatchForgotten", "BatchReused", "BranchExists", "CalledWithin",
        "ColdTierRequired", "ConcurrentModification", "Conflict", "Corrupt", "DaemonError", "DaemonGone",
        "DeleteNotUndone", "DirectoryInUse", "DirectoryNotWritable", "DiskFull", "Evicted", "FileCorrupt",
        "FormatUnsupported", "HeadMoved", "InvalidArgument", "InvalidEntry", "InvalidFrame", "InvalidLabel",
        "InvalidName", "InvalidSetting", "InvalidTarget", "KeyReused", "LeaseLost", "LogClosed", "Missing",
        "Misuse", "NoSuchBranch", "NoSuchSegment", "NoSuchTag", "NoSuchTopic", "NotADataDirectory", "NotInstalled",
        "NotTruncatable", "OffsetOverflow", "OpenedByParent", "OtherIncarnation", "OtherLoop", "OutOfWindow",
        "ProducerFenced", "ProducerGap", "ReadOnly", "RecordTooLarge", "SameFile", "SeglogError", "SegmentCut",
        "SeqOutOfRange", "TooManyKeys", "TooManyOpenFiles", "TopicExists", "TopicFull", "Truncated",
        "Unavailable", "UpgradeNeeded", "ViewOutdated", "WarmDirectoryNotApart", "WarmDirectoryTaken",
        "WarmStoreFailed", "WarmStoreRequired", "WriterPoisoned", "WrittenElsewhere",
    ),
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
_HOMES = {name: module for module, names in _NAMES.items() for name in names} | {"errors": "seglog.errors"}
__all__ = sorted(_HOMES)

if _foreign := shadowing_text("catalog", "offload"):
    from warnings import warn

    warn(f"{_foreign}. The log itself needs neither.", RuntimeWarning, stacklevel=2)

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module 'seglog' has no attribute {name!r}")
        from importlib import import_module

        home = import_module(_HOMES[name])
        attribute = home if name == "errors" else getattr(home, name)
        globals()[name] = attribute
        return attribute

    def __dir__():
        return sorted({*globals(), *__all__})
