import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CommitKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMMIT_KIND_UNSPECIFIED: _ClassVar[CommitKind]
    COMMIT_KIND_OFFLOAD: _ClassVar[CommitKind]
    COMMIT_KIND_DELETE: _ClassVar[CommitKind]
    COMMIT_KIND_EVICT: _ClassVar[CommitKind]
    COMMIT_KIND_TRUNCATE: _ClassVar[CommitKind]
    COMMIT_KIND_COMPACT: _ClassVar[CommitKind]
    COMMIT_KIND_CONFIG: _ClassVar[CommitKind]
    COMMIT_KIND_RESTORE: _ClassVar[CommitKind]

class Codec(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CODEC_UNSPECIFIED: _ClassVar[Codec]
    CODEC_NONE: _ClassVar[Codec]
    CODEC_ZSTD: _ClassVar[Codec]

class LedgerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEDGER_STATE_UNSPECIFIED: _ClassVar[LedgerState]
    OPEN: _ClassVar[LedgerState]
    IN_RECOVERY: _ClassVar[LedgerState]
    CLOSED: _ClassVar[LedgerState]

class DigestType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIGEST_TYPE_UNSPECIFIED: _ClassVar[DigestType]
    CRC32: _ClassVar[DigestType]
    HMAC: _ClassVar[DigestType]
    CRC32C: _ClassVar[DigestType]
    DUMMY: _ClassVar[DigestType]
COMMIT_KIND_UNSPECIFIED: CommitKind
COMMIT_KIND_OFFLOAD: CommitKind
COMMIT_KIND_DELETE: CommitKind
COMMIT_KIND_EVICT: CommitKind
COMMIT_KIND_TRUNCATE: CommitKind
COMMIT_KIND_COMPACT: CommitKind
COMMIT_KIND_CONFIG: CommitKind
COMMIT_KIND_RESTORE: CommitKind
CODEC_UNSPECIFIED: Codec
CODEC_NONE: Codec
CODEC_ZSTD: Codec
LEDGER_STATE_UNSPECIFIED: LedgerState
OPEN: LedgerState
IN_RECOVERY: LedgerState
CLOSED: LedgerState
DIGEST_TYPE_UNSPECIFIED: DigestType
CRC32: DigestType
HMAC: DigestType
CRC32C: DigestType
DUMMY: DigestType

class Control(_message.Message):
    __slots__ = ("vid", "parent", "created_at", "topic", "branch")
    VID_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    vid: bytes
    parent: VolumeRef
    created_at: _timestamp_pb2.Timestamp
    topic: str
    branch: str
    def __init__(self, vid: _Optional[bytes] = ..., parent: _Optional[_Union[VolumeRef, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., topic: _Optional[str] = ..., branch: _Optional[str] = ...) -> None: ...

class VolumeRef(_message.Message):
    __slots__ = ("vid", "lsn", "seq")
    VID_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    vid: bytes
    lsn: int
    seq: int
    def __init__(self, vid: _Optional[bytes] = ..., lsn: _Optional[int] = ..., seq: _Optional[int] = ...) -> None: ...

class Fork(_message.Message):
    __slots__ = ("fork_vid", "parent")
    FORK_VID_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    fork_vid: bytes
    parent: VolumeRef
    def __init__(self, fork_vid: _Optional[bytes] = ..., parent: _Optional[_Union[VolumeRef, _Mapping]] = ...) -> None: ...

class Ref(_message.Message):
    __slots__ = ("vid", "created_at", "deleted_at", "nonce")
    VID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    DELETED_AT_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    vid: bytes
    created_at: _timestamp_pb2.Timestamp
    deleted_at: _timestamp_pb2.Timestamp
    nonce: bytes
    def __init__(self, vid: _Optional[bytes] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deleted_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class Tag(_message.Message):
    __slots__ = ("point", "branch", "created_at", "message", "deleted_at", "nonce")
    POINT_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DELETED_AT_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    point: VolumeRef
    branch: str
    created_at: _timestamp_pb2.Timestamp
    message: str
    deleted_at: _timestamp_pb2.Timestamp
    nonce: bytes
    def __init__(self, point: _Optional[_Union[VolumeRef, _Mapping]] = ..., branch: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., message: _Optional[str] = ..., deleted_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class Pin(_message.Message):
    __slots__ = ("point", "expires_at", "holder", "nonce")
    POINT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    point: VolumeRef
    expires_at: _timestamp_pb2.Timestamp
    holder: str
    nonce: bytes
    def __init__(self, point: _Optional[_Union[VolumeRef, _Mapping]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., holder: _Optional[str] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class Boundary(_message.Message):
    __slots__ = ("vid", "lsn", "closing", "nonce")
    VID_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    CLOSING_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    vid: bytes
    lsn: int
    closing: bool
    nonce: bytes
    def __init__(self, vid: _Optional[bytes] = ..., lsn: _Optional[int] = ..., closing: _Optional[bool] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class OplogEntry(_message.Message):
    __slots__ = ("at", "writer_id", "operation", "subject", "former", "value", "nonce", "message", "others")
    AT_FIELD_NUMBER: _ClassVar[int]
    WRITER_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    writer_id: str
    operation: str
    subject: str
    former: bytes
    value: bytes
    nonce: bytes
    message: str
    others: _containers.RepeatedCompositeFieldContainer[NameChange]
    def __init__(self, at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., writer_id: _Optional[str] = ..., operation: _Optional[str] = ..., subject: _Optional[str] = ..., former: _Optional[bytes] = ..., value: _Optional[bytes] = ..., nonce: _Optional[bytes] = ..., message: _Optional[str] = ..., others: _Optional[_Iterable[_Union[NameChange, _Mapping]]] = ...) -> None: ...

class NameChange(_message.Message):
    __slots__ = ("subject", "former", "value")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    subject: str
    former: bytes
    value: bytes
    def __init__(self, subject: _Optional[str] = ..., former: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class GcPlan(_message.Message):
    __slots__ = ("written_at", "pages", "objects")
    WRITTEN_AT_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    written_at: _timestamp_pb2.Timestamp
    pages: int
    objects: int
    def __init__(self, written_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., pages: _Optional[int] = ..., objects: _Optional[int] = ...) -> None: ...

class GcPage(_message.Message):
    __slots__ = ("written_at", "volumes", "nonce")
    WRITTEN_AT_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    written_at: _timestamp_pb2.Timestamp
    volumes: _containers.RepeatedCompositeFieldContainer[GcVolume]
    nonce: bytes
    def __init__(self, written_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., volumes: _Optional[_Iterable[_Union[GcVolume, _Mapping]]] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class GcVolume(_message.Message):
    __slots__ = ("vid", "lsns", "segments", "segment_bytes", "orphans", "lists", "forks", "pins", "closes", "raises", "first_lsn")
    VID_FIELD_NUMBER: _ClassVar[int]
    LSNS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ORPHANS_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    FORKS_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    CLOSES_FIELD_NUMBER: _ClassVar[int]
    RAISES_FIELD_NUMBER: _ClassVar[int]
    FIRST_LSN_FIELD_NUMBER: _ClassVar[int]
    vid: bytes
    lsns: _containers.RepeatedScalarFieldContainer[int]
    segments: _containers.RepeatedScalarFieldContainer[bytes]
    segment_bytes: _containers.RepeatedScalarFieldContainer[int]
    orphans: _containers.RepeatedScalarFieldContainer[bytes]
    lists: _containers.RepeatedCompositeFieldContainer[GcList]
    forks: _containers.RepeatedScalarFieldContainer[bytes]
    pins: _containers.RepeatedScalarFieldContainer[str]
    closes: bool
    raises: bool
    first_lsn: int
    def __init__(self, vid: _Optional[bytes] = ..., lsns: _Optional[_Iterable[int]] = ..., segments: _Optional[_Iterable[bytes]] = ..., segment_bytes: _Optional[_Iterable[int]] = ..., orphans: _Optional[_Iterable[bytes]] = ..., lists: _Optional[_Iterable[_Union[GcList, _Mapping]]] = ..., forks: _Optional[_Iterable[bytes]] = ..., pins: _Optional[_Iterable[str]] = ..., closes: _Optional[bool] = ..., raises: _Optional[bool] = ..., first_lsn: _Optional[int] = ...) -> None: ...

class GcList(_message.Message):
    __slots__ = ("lsn", "digest")
    LSN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    lsn: int
    digest: bytes
    def __init__(self, lsn: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("vid", "lsn", "first_seq", "head_seq", "evict_floor")
    VID_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
    EVICT_FLOOR_FIELD_NUMBER: _ClassVar[int]
    vid: bytes
    lsn: int
    first_seq: int
    head_seq: int
    evict_floor: int
    def __init__(self, vid: _Optional[bytes] = ..., lsn: _Optional[int] = ..., first_seq: _Optional[int] = ..., head_seq: _Optional[int] = ..., evict_floor: _Optional[int] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("snapshot", "hash", "segments", "checkpoint_ts", "kind", "parent_hash", "nonce", "created_at", "writer_id", "epoch", "message", "removed_sids", "deletions", "truncate_from", "at_seq", "at_ts_ms", "config", "collected_before_ms", "checkpoint", "load", "restored")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_TS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PARENT_HASH_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    WRITER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_SIDS_FIELD_NUMBER: _ClassVar[int]
    DELETIONS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FROM_FIELD_NUMBER: _ClassVar[int]
    AT_SEQ_FIELD_NUMBER: _ClassVar[int]
    AT_TS_MS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    COLLECTED_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    hash: bytes
    segments: _containers.RepeatedCompositeFieldContainer[SegmentRef]
    checkpoint_ts: _timestamp_pb2.Timestamp
    kind: CommitKind
    parent_hash: bytes
    nonce: bytes
    created_at: _timestamp_pb2.Timestamp
    writer_id: str
    epoch: int
    message: str
    removed_sids: _containers.RepeatedScalarFieldContainer[bytes]
    deletions: Deletions
    truncate_from: int
    at_seq: int
    at_ts_ms: int
    config: str
    collected_before_ms: int
    checkpoint: Checkpoint
    load: Load
    restored: Restored
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., hash: _Optional[bytes] = ..., segments: _Optional[_Iterable[_Union[SegmentRef, _Mapping]]] = ..., checkpoint_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kind: _Optional[_Union[CommitKind, str]] = ..., parent_hash: _Optional[bytes] = ..., nonce: _Optional[bytes] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., writer_id: _Optional[str] = ..., epoch: _Optional[int] = ..., message: _Optional[str] = ..., removed_sids: _Optional[_Iterable[bytes]] = ..., deletions: _Optional[_Union[Deletions, _Mapping]] = ..., truncate_from: _Optional[int] = ..., at_seq: _Optional[int] = ..., at_ts_ms: _Optional[int] = ..., config: _Optional[str] = ..., collected_before_ms: _Optional[int] = ..., checkpoint: _Optional[_Union[Checkpoint, _Mapping]] = ..., load: _Optional[_Union[Load, _Mapping]] = ..., restored: _Optional[_Union[Restored, _Mapping]] = ...) -> None: ...

class Restored(_message.Message):
    __slots__ = ("undone", "before_seq", "views")
    UNDONE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_SEQ_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    undone: VolumeRef
    before_seq: int
    views: _containers.RepeatedCompositeFieldContainer[SegmentView]
    def __init__(self, undone: _Optional[_Union[VolumeRef, _Mapping]] = ..., before_seq: _Optional[int] = ..., views: _Optional[_Iterable[_Union[SegmentView, _Mapping]]] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("key", "salt")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    key: str
    salt: bytes
    def __init__(self, key: _Optional[str] = ..., salt: _Optional[bytes] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("list", "list_hash", "list_length", "before_seq", "max_seq", "config", "collected_before_ms", "max_ts_ms", "put_out_ms", "load_epoch", "loaded")
    LIST_FIELD_NUMBER: _ClassVar[int]
    LIST_HASH_FIELD_NUMBER: _ClassVar[int]
    LIST_LENGTH_FIELD_NUMBER: _ClassVar[int]
    BEFORE_SEQ_FIELD_NUMBER: _ClassVar[int]
    MAX_SEQ_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    COLLECTED_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_TS_MS_FIELD_NUMBER: _ClassVar[int]
    PUT_OUT_MS_FIELD_NUMBER: _ClassVar[int]
    LOAD_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    list: bytes
    list_hash: bytes
    list_length: int
    before_seq: int
    max_seq: int
    config: str
    collected_before_ms: int
    max_ts_ms: int
    put_out_ms: int
    load_epoch: int
    loaded: _containers.RepeatedCompositeFieldContainer[LoadedKey]
    def __init__(self, list: _Optional[bytes] = ..., list_hash: _Optional[bytes] = ..., list_length: _Optional[int] = ..., before_seq: _Optional[int] = ..., max_seq: _Optional[int] = ..., config: _Optional[str] = ..., collected_before_ms: _Optional[int] = ..., max_ts_ms: _Optional[int] = ..., put_out_ms: _Optional[int] = ..., load_epoch: _Optional[int] = ..., loaded: _Optional[_Iterable[_Union[LoadedKey, _Mapping]]] = ...) -> None: ...

class LoadedKey(_message.Message):
    __slots__ = ("key", "last_seq")
    KEY_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    key: str
    last_seq: int
    def __init__(self, key: _Optional[str] = ..., last_seq: _Optional[int] = ...) -> None: ...

class SegmentList(_message.Message):
    __slots__ = ("views",)
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    views: _containers.RepeatedCompositeFieldContainer[SegmentView]
    def __init__(self, views: _Optional[_Iterable[_Union[SegmentView, _Mapping]]] = ...) -> None: ...

class SegmentView(_message.Message):
    __slots__ = ("ref", "vid", "lsn", "first", "last", "deleted")
    REF_FIELD_NUMBER: _ClassVar[int]
    VID_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    ref: SegmentRef
    vid: bytes
    lsn: int
    first: int
    last: int
    deleted: bytes
    def __init__(self, ref: _Optional[_Union[SegmentRef, _Mapping]] = ..., vid: _Optional[bytes] = ..., lsn: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., deleted: _Optional[bytes] = ...) -> None: ...

class SegmentRef(_message.Message):
    __slots__ = ("sid", "first_seq", "last_seq", "min_ts_ms", "max_ts_ms", "data_length", "data_hash", "index_head_length", "index_trailer_length", "index_head_hash", "codec", "frame_bytes", "live_records")
    SID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    MIN_TS_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_TS_MS_FIELD_NUMBER: _ClassVar[int]
    DATA_LENGTH_FIELD_NUMBER: _ClassVar[int]
    DATA_HASH_FIELD_NUMBER: _ClassVar[int]
    INDEX_HEAD_LENGTH_FIELD_NUMBER: _ClassVar[int]
    INDEX_TRAILER_LENGTH_FIELD_NUMBER: _ClassVar[int]
    INDEX_HEAD_HASH_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIVE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    sid: bytes
    first_seq: int
    last_seq: int
    min_ts_ms: int
    max_ts_ms: int
    data_length: int
    data_hash: bytes
    index_head_length: int
    index_trailer_length: int
    index_head_hash: bytes
    codec: Codec
    frame_bytes: int
    live_records: int
    def __init__(self, sid: _Optional[bytes] = ..., first_seq: _Optional[int] = ..., last_seq: _Optional[int] = ..., min_ts_ms: _Optional[int] = ..., max_ts_ms: _Optional[int] = ..., data_length: _Optional[int] = ..., data_hash: _Optional[bytes] = ..., index_head_length: _Optional[int] = ..., index_trailer_length: _Optional[int] = ..., index_head_hash: _Optional[bytes] = ..., codec: _Optional[_Union[Codec, str]] = ..., frame_bytes: _Optional[int] = ..., live_records: _Optional[int] = ...) -> None: ...

class Deletions(_message.Message):
    __slots__ = ("before_seq", "segments")
    BEFORE_SEQ_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    before_seq: int
    segments: _containers.RepeatedCompositeFieldContainer[SegmentDeletion]
    def __init__(self, before_seq: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[SegmentDeletion, _Mapping]]] = ...) -> None: ...

class SegmentDeletion(_message.Message):
    __slots__ = ("sid", "bitmap")
    SID_FIELD_NUMBER: _ClassVar[int]
    BITMAP_FIELD_NUMBER: _ClassVar[int]
    sid: bytes
    bitmap: bytes
    def __init__(self, sid: _Optional[bytes] = ..., bitmap: _Optional[bytes] = ...) -> None: ...

class LedgerMetadata(_message.Message):
    __slots__ = ("quorum_size", "ensemble_size", "length", "last_entry_id", "state", "segment", "digest_type", "password", "ack_quorum_size", "ctime", "custom_metadata")
    QUORUM_SIZE_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_TYPE_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    ACK_QUORUM_SIZE_FIELD_NUMBER: _ClassVar[int]
    CTIME_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_METADATA_FIELD_NUMBER: _ClassVar[int]
    quorum_size: int
    ensemble_size: int
    length: int
    last_entry_id: int
    state: LedgerState
    segment: _containers.RepeatedCompositeFieldContainer[LedgerSegment]
    digest_type: DigestType
    password: bytes
    ack_quorum_size: int
    ctime: int
    custom_metadata: _containers.RepeatedCompositeFieldContainer[CustomMetadata]
    def __init__(self, quorum_size: _Optional[int] = ..., ensemble_size: _Optional[int] = ..., length: _Optional[int] = ..., last_entry_id: _Optional[int] = ..., state: _Optional[_Union[LedgerState, str]] = ..., segment: _Optional[_Iterable[_Union[LedgerSegment, _Mapping]]] = ..., digest_type: _Optional[_Union[DigestType, str]] = ..., password: _Optional[bytes] = ..., ack_quorum_size: _Optional[int] = ..., ctime: _Optional[int] = ..., custom_metadata: _Optional[_Iterable[_Union[CustomMetadata, _Mapping]]] = ...) -> None: ...

class LedgerSegment(_message.Message):
    __slots__ = ("ensemble_member", "first_entry_id")
    ENSEMBLE_MEMBER_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    ensemble_member: _containers.RepeatedScalarFieldContainer[str]
    first_entry_id: int
    def __init__(self, ensemble_member: _Optional[_Iterable[str]] = ..., first_entry_id: _Optional[int] = ...) -> None: ...

class StreamedLedgerInfo(_message.Message):
    __slots__ = ("ledger_id", "entries", "size", "timestamp")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entries: int
    size: int
    timestamp: int
    def __init__(self, ledger_id: _Optional[int] = ..., entries: _Optional[int] = ..., size: _Optional[int] = ..., timestamp: _Optional[int] = ...) -> None: ...

class CustomMetadata(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class SegmentMetadata(_message.Message):
    __slots__ = ("version", "topic", "topic_id", "first_seq", "last_seq", "min_ts_ms", "max_ts_ms", "codec", "block_size", "chunks", "live", "tags", "tags_complete", "data_hash", "software")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    MIN_TS_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_TS_MS_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    TAGS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    DATA_HASH_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    version: int
    topic: str
    topic_id: int
    first_seq: int
    last_seq: int
    min_ts_ms: int
    max_ts_ms: int
    codec: Codec
    block_size: int
    chunks: _containers.RepeatedCompositeFieldContainer[Chunk]
    live: bytes
    tags: _containers.RepeatedCompositeFieldContainer[TagEntries]
    tags_complete: bool
    data_hash: bytes
    software: str
    def __init__(self, version: _Optional[int] = ..., topic: _Optional[str] = ..., topic_id: _Optional[int] = ..., first_seq: _Optional[int] = ..., last_seq: _Optional[int] = ..., min_ts_ms: _Optional[int] = ..., max_ts_ms: _Optional[int] = ..., codec: _Optional[_Union[Codec, str]] = ..., block_size: _Optional[int] = ..., chunks: _Optional[_Iterable[_Union[Chunk, _Mapping]]] = ..., live: _Optional[bytes] = ..., tags: _Optional[_Iterable[_Union[TagEntries, _Mapping]]] = ..., tags_complete: _Optional[bool] = ..., data_hash: _Optional[bytes] = ..., software: _Optional[str] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("offset", "stored_length", "raw_length", "first_seq", "min_ts_ms", "max_ts_ms", "xxh3")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    RAW_LENGTH_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    MIN_TS_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_TS_MS_FIELD_NUMBER: _ClassVar[int]
    XXH3_FIELD_NUMBER: _ClassVar[int]
    offset: int
    stored_length: int
    raw_length: int
    first_seq: int
    min_ts_ms: int
    max_ts_ms: int
    xxh3: int
    def __init__(self, offset: _Optional[int] = ..., stored_length: _Optional[int] = ..., raw_length: _Optional[int] = ..., first_seq: _Optional[int] = ..., min_ts_ms: _Optional[int] = ..., max_ts_ms: _Optional[int] = ..., xxh3: _Optional[int] = ...) -> None: ...

class TagEntries(_message.Message):
    __slots__ = ("tag", "bitmap")
    TAG_FIELD_NUMBER: _ClassVar[int]
    BITMAP_FIELD_NUMBER: _ClassVar[int]
    tag: str
    bitmap: bytes
    def __init__(self, tag: _Optional[str] = ..., bitmap: _Optional[bytes] = ...) -> None: ...
