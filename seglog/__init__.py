"""The log on local disk: topics of records, a write-ahead log before them, sealed segments behind.

    import seglog

    with seglog.open("data") as log:
        seqs = log.topic("orders").append([b"one", b"two"], tag="eu")
        for record in log.topic("orders").read(start=1):
            print(record.seq, record.value)

It knows nothing of object storage: a `ColdTier` may be attached for what has left the disk.
"""

from __future__ import annotations

from seglog.clock import Clock, SystemClock
from seglog.config import (
    DISCARDS,
    DURABILITIES,
    SETTINGS_FILE,
    LogSettings,
    TopicConfig,
    default_toml,
    load_settings,
    read_sections,
    write_default,
)
from seglog.damage import Checked, Damage, Report
from seglog.deletes import DeleteOp
from seglog.errors import (
    AppendsHeld,
    ColdStoreFailed,
    ColdStoreRequired,
    ColdTierAttached,
    ColdTierRequired,
    Conflict,
    Corrupt,
    DirectoryExists,
    DirectoryInUse,
    DirectoryNotReadable,
    DirectoryNotWritable,
    DiskFull,
    Evicted,
    FileCorrupt,
    FormatUnsupported,
    HistoryKept,
    InvalidArgument,
    InvalidEntry,
    InvalidFrame,
    InvalidItem,
    InvalidLabel,
    InvalidSetting,
    InvalidTopicName,
    ItemTooLarge,
    JournalClosed,
    LogClosed,
    Missing,
    Misuse,
    NoSuchItem,
    NoSuchSegment,
    NoSuchTopic,
    NotADataDirectory,
    NotTruncatable,
    OffsetOverflow,
    ReadOnly,
    RecordTooLarge,
    SectionPruned,
    SeglogError,
    SegmentCut,
    SeqOutOfRange,
    TopicExists,
    TopicFull,
    TopicMoved,
    Truncated,
    Unavailable,
    ViewOutdated,
    WriterPoisoned,
    WrongSize,
)
from seglog.files import Files, OsFiles, replace_atomically
from seglog.log import Log, open
from seglog.record import Gap, Record
from seglog.retention import Retention
from seglog.segment import SegmentInfo
from seglog.tier import ColdTier
from seglog.topic import Topic
from seglog.truncate_op import TruncateOp
from seglog.verification import verify

__all__ = [
    "DISCARDS",
    "DURABILITIES",
    "SETTINGS_FILE",
    "AppendsHeld",
    "Checked",
    "Clock",
    "ColdStoreFailed",
    "ColdStoreRequired",
    "ColdTier",
    "ColdTierAttached",
    "ColdTierRequired",
    "Conflict",
    "Corrupt",
    "Damage",
    "DeleteOp",
    "DirectoryExists",
    "DirectoryInUse",
    "DirectoryNotReadable",
    "DirectoryNotWritable",
    "DiskFull",
    "Evicted",
    "FileCorrupt",
    "Files",
    "FormatUnsupported",
    "Gap",
    "HistoryKept",
    "InvalidArgument",
    "InvalidEntry",
    "InvalidFrame",
    "InvalidItem",
    "InvalidLabel",
    "InvalidSetting",
    "InvalidTopicName",
    "ItemTooLarge",
    "JournalClosed",
    "Log",
    "LogClosed",
    "LogSettings",
    "Missing",
    "Misuse",
    "NoSuchItem",
    "NoSuchSegment",
    "NoSuchTopic",
    "NotADataDirectory",
    "NotTruncatable",
    "OffsetOverflow",
    "OsFiles",
    "ReadOnly",
    "Record",
    "RecordTooLarge",
    "Report",
    "Retention",
    "SectionPruned",
    "SeglogError",
    "SegmentCut",
    "SegmentInfo",
    "SeqOutOfRange",
    "SystemClock",
    "Topic",
    "TopicConfig",
    "TopicExists",
    "TopicFull",
    "TopicMoved",
    "TruncateOp",
    "Truncated",
    "Unavailable",
    "ViewOutdated",
    "WriterPoisoned",
    "WrongSize",
    "default_toml",
    "load_settings",
    "open",
    "read_sections",
    "replace_atomically",
    "verify",
    "write_default",
]
