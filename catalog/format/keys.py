"""Every key under a tenant's prefix. No other module formats or parses keys.

    refs/{topic}/{branch}               Ref            compare-and-swap
    tags/{topic}/{name}                 Tag            compare-and-swap
    pins/{vid}/{id}                     Pin            compare-and-swap
    oplog/{CBE64(n)}                    OplogEntry     immutable
    gc/{CBE64(n)}/plan                  GcPlan         immutable; put last, taken away first
    gc/{CBE64(n)}/{page}                GcPage         immutable; page: 8 digits
    {vid}/control                       Control        immutable
    {vid}/forks/{fork-vid}              Fork           immutable
    {vid}/checkpoints                   CheckpointSet  compare-and-swap
    {vid}/boundary                      Boundary       compare-and-swap, only upwards
    {vid}/log/{CBE64(lsn)}              Commit         put-if-absent; compare-and-swap to become a checkpoint
    {vid}/lists/{CBE64(lsn)}.{blake3}   SegmentList    immutable; of the checkpoint at that LSN; blake3 in hex
    {vid}/segments/{sid}                data object
    {vid}/segments/{sid}.index          index object
    doctor/{sid}/...                    what `seglog doctor` tries, and removes
    cold/{place}/owner                  the id of the log whose segments are there
    cold/{place}/{topic}/{seq}.data     segments that a log moved here as they are, and
    cold/{place}/{topic}/{seq}.idx      their entries; topic: 8 hex digits, seq: 16 digits

Keys are relative. A store adds the prefix that it was opened with, and no key leads out of that prefix. A listing may
show foreign keys too. A function that parses a key returns None for a key that no function here makes.
Source: Graft RFC 0001 (Object storage keyspace); refs are ours. This module does no I/O.
"""

from __future__ import annotations

import re
from typing import NewType

from catalog.errors import InvalidKey, InvalidName
from catalog.format.ids import Sid, Vid, from_cbe64, to_cbe64
from seglog.base.lazy import pattern

Key = NewType("Key", str)

_NAME = pattern(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_LIST = pattern(r"/lists/([0-9A-F]{16})\.([0-9a-f]{64})\Z")
_ENTRY = pattern(r"oplog/([0-9A-F]{16})")
_COMMIT = pattern(r"[^/]+/log/([0-9A-F]{16})")
_PLAN = pattern(r"gc/([0-9A-F]{16})/(plan|[0-9]{8})")
_COLD_SEGMENT = pattern(r"cold/[^/]+/([0-9A-F]{8})/([0-9]{16})\.(data|idx)")
_KEY = pattern(r"[A-Za-z0-9_][A-Za-z0-9._=@-]*(/[A-Za-z0-9_][A-Za-z0-9._=@-]*)*")  # with keys of Hive's partitions


def check_name(kind: str, name: str) -> str:
    """Return `name` if it is a valid topic, branch or tag name. Otherwise raise `InvalidName`."""
    if not _NAME.fullmatch(name):
        raise InvalidName(kind, name)
    return name


def check_key(key: str) -> Key:
    """Return `key` if it stays inside any prefix that it is put under. Otherwise raise `InvalidKey`."""
    if not _KEY.fullmatch(key):
        raise InvalidKey(key)
    return Key(key)


def check_prefix(prefix: str) -> str:
    """Return `prefix` if it is empty, or the beginning of a key. Otherwise raise `InvalidKey`."""
    if prefix:
        check_key(prefix.removesuffix("/"))
    return prefix


def refs_prefix(topic: str | None = None) -> str:
    return "refs/" if topic is None else f"refs/{check_name('topic', topic)}/"


def ref_key(topic: str, branch: str) -> Key:
    return Key(f"{refs_prefix(topic)}{check_name('branch', branch)}")


def tags_prefix(topic: str | None = None) -> str:
    return "tags/" if topic is None else f"tags/{check_name('topic', topic)}/"


def tag_key(topic: str, name: str) -> Key:
    return Key(f"{tags_prefix(topic)}{check_name('tag', name)}")


def pins_prefix(vid: Vid | None = None) -> str:
    return "pins/" if vid is None else f"pins/{vid}/"


def pin_key(vid: Vid, name: str) -> Key:
    return Key(f"{pins_prefix(vid)}{check_name('pin', name)}")


def volume_in_pin(key: str) -> tuple[Vid, str] | None:
    """Return the volume and the name of a pin's key; None for any other key."""
    parts = key.split("/")
    try:
        is_one = len(parts) == 3 and parts[0] == "pins" and _NAME.fullmatch(parts[2])
        return (Vid.parse(parts[1]), parts[2]) if is_one else None
    except InvalidKey:
        return None


def oplog_prefix() -> str:
    return "oplog/"


def oplog_key(number: int) -> Key:
    """Return the key of the entry `number`, which counts from 1."""
    return Key(f"{oplog_prefix()}{to_cbe64(number)}")


def number_of(key: str) -> int | None:
    """Return the number in an oplog entry's key; None for any other key."""
    return _number(_ENTRY, key)


def named_by(key: str) -> tuple[str, str] | None:
    """Return topic and branch of a ref's key, or topic and name of a tag's key; None for any other key."""
    kind, _, names = key.partition("/")
    topic, _, name = names.partition("/")
    is_one = kind in {"refs", "tags"} and _NAME.fullmatch(topic) and _NAME.fullmatch(name)
    return (topic, name) if is_one else None


def topic_of(key: str) -> str:
    """Return the topic of a ref or tag key."""
    return key.split("/")[1]


def branch_of(key: str) -> str:
    """Return the branch of a ref key, or the name of a tag key."""
    return key.split("/")[2]


def control_key(vid: Vid) -> Key:
    return Key(f"{vid}/control")


def volume_of(key: str) -> Vid | None:
    """Return the volume that an object belongs to; None for an object of no volume."""
    try:
        return Vid.parse(key.partition("/")[0])
    except InvalidKey:
        return None


def forks_prefix(parent: Vid) -> str:
    return f"{parent}/forks/"


def fork_key(parent: Vid, fork: Vid) -> Key:
    return Key(f"{forks_prefix(parent)}{fork}")


def fork_of(key: str) -> Vid | None:
    """Return the fork in a fork's key; None for any other key."""
    parts = key.split("/")
    try:
        return Vid.parse(parts[2]) if len(parts) == 3 and parts[1] == "forks" and Vid.parse(parts[0]) else None
    except InvalidKey:
        return None


def checkpoints_key(vid: Vid) -> Key:
    return Key(f"{vid}/checkpoints")


def boundary_key(vid: Vid) -> Key:
    return Key(f"{vid}/boundary")


def forward_key(vid: Vid) -> Key:
    """Return the place of what a proxy gave in the local catalog. No object has this key."""
    return Key(f"{vid}/forward")


def lists_prefix(vid: Vid) -> str:
    return f"{vid}/lists/"


def list_key(vid: Vid, lsn: int, digest: bytes) -> Key:
    return Key(f"{lists_prefix(vid)}{to_cbe64(lsn)}.{digest.hex()}")


def list_of(key: str) -> tuple[int, bytes] | None:
    """Return LSN and digest of a list's key; None for any other key."""
    match = _LIST.search(key)
    try:
        return None if match is None else (from_cbe64(match[1]), bytes.fromhex(match[2]))
    except InvalidKey:
        return None


def commits_prefix(vid: Vid) -> str:
    return f"{vid}/log/"


def commit_key(vid: Vid, lsn: int) -> Key:
    return Key(f"{vid}/log/{to_cbe64(lsn)}")


def lsn_of(key: str) -> int | None:
    """Return the LSN of a commit's key; None for any other key."""
    return _number(_COMMIT, key)


def doctor_prefix(run: Sid) -> str:
    return f"doctor/{run}/"


def cold_owner_key(place: str) -> Key:
    return check_key(f"cold/{check_name('place', place)}/owner")


def cold_place_prefix(place: str) -> str:
    return f"cold/{check_name('place', place)}/"


def cold_prefix(place: str, topic_id: int) -> str:
    return f"cold/{check_name('place', place)}/{topic_id:08X}/"


def cold_segment_key(place: str, topic_id: int, first_seq: int, part: str) -> Key:
    return check_key(f"{cold_prefix(place, topic_id)}{first_seq:016d}.{part}")


def cold_segment_of(key: str) -> tuple[int, int, str] | None:
    """Return topic id, first seq and part of a warm segment's key; None for any other key."""
    match = _COLD_SEGMENT.fullmatch(key)
    return None if match is None else (int(match[1], 16), int(match[2]), match[3])


def segments_prefix(vid: Vid) -> str:
    return f"{vid}/segments/"


def data_key(vid: Vid, sid: Sid) -> Key:
    return Key(f"{vid}/segments/{sid}")


def sid_of(key: str) -> Sid | None:
    """Return the segment of a data key; None for any other key."""
    parts = key.split("/")
    if len(parts) != 3 or parts[1] != "segments":
        return None
    try:
        return Sid.parse(parts[2])
    except InvalidKey:
        return None


def index_key(vid: Vid, sid: Sid) -> Key:
    return Key(f"{vid}/segments/{sid}.index")


def is_fixed(key: str) -> bool:
    """Return whether the bytes under the key never change: it has a random id or a hash in it, and is of a segment or a
    list.
    """
    return volume_of(key) is not None and (sid_of(key.removesuffix(".index")) or list_of(key)) is not None


def volumes_prefix() -> str:
    """Return the text that begins the key of every object of a volume, and no other key."""
    return "5"


def after_volume(vid: Vid) -> str:
    """Return a text that sorts after every key of the volume, and before the keys of the next one."""
    return f"{vid}/~"


def plans_prefix() -> str:
    return "gc/"


def plan_prefix(number: int) -> str:
    return f"{plans_prefix()}{to_cbe64(number)}/"


def plan_key(number: int) -> Key:
    return Key(f"{plan_prefix(number)}plan")


def page_key(number: int, page: int) -> Key:
    return Key(f"{plan_prefix(number)}{page:08d}")


def plan_of(key: str) -> int | None:
    """Return the number of the plan that a plan or page belongs to; None for any other key."""
    return _number(_PLAN, key)


def _number(pattern: re.Pattern[str], key: str) -> int | None:
    match = pattern.fullmatch(key)
    try:
        return None if match is None else from_cbe64(match[1])
    except InvalidKey:
        return None
