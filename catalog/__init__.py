"""Versions on object storage: volumes, commits, branches, and points in time. Knows nothing of the log.

    store = catalog.objects.s3.S3Store("s3://bucket/acme")   # or LocalStore, MemoryStore
    volumes = catalog.Volumes(store, cache)              # cache: a LocalCatalog, or None
    branches = catalog.Branches(volumes)
    vid = branches.resolve("orders", "main")
    snapshot = volumes.snapshot(vid)                     # which segments show which seqs
    target = catalog.parse_target("15 minutes ago", now_ms=now_ms)
    point = catalog.resolve(target, volumes.history(vid), last_seq_at)
    half = branches.create("orders", "half", point, now_ms=now_ms)

Rooms:
    format      bytes in the store to values and back, ids and keys
    objects     the port to object storage and its kinds
    refs        branches, tags, pins and the log of operations
    gc          garbage collection and scrub
    tenants     names of tenants, and IAM policies
The modules beside them make volumes of commits: volume, history, timeline, snapshot, local, sync, checkpointer.

The package imports a name when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from catalog.checkpointer import (
        CheckpointPolicy as CheckpointPolicy,
        checkpoint_due as checkpoint_due,
        make_checkpoint as make_checkpoint,
    )
    from catalog.errors import CatalogError as CatalogError
    from catalog.format.commit import (
        NO_PARENT as NO_PARENT,
        Bounds as Bounds,
        Codec as Codec,
        Commit as Commit,
        CommitKind as CommitKind,
        Deletions as Deletions,
        ForkPoint as ForkPoint,
        SegmentRef as SegmentRef,
        SegmentView as SegmentView,
    )
    from catalog.format.control import MAIN as MAIN, Control as Control, Fork as Fork, Ref as Ref
    from catalog.format.encoding import StoredCommit as StoredCommit, encode_commit as encode_commit
    from catalog.format.ids import Sid as Sid, Vid as Vid
    from catalog.format.keys import Key as Key
    from catalog.history import History as History, PastCommit as PastCommit
    from catalog.local_catalog import Attempt as Attempt, Handle as Handle, LocalCatalog as LocalCatalog
    from catalog.objects import (
        LocalStore as LocalStore,
        MemoryStore as MemoryStore,
        ObjectInfo as ObjectInfo,
        ObjectStore as ObjectStore,
        PartTag as PartTag,
        WithETag as WithETag,
    )
    from catalog.refs.branch import Branch as Branch, Branches as Branches
    from catalog.snapshot import Snapshot as Snapshot
    from catalog.timeline import (
        Head as Head,
        Lsn as Lsn,
        Named as Named,
        Pinned as Pinned,
        Seq as Seq,
        Target as Target,
        Time as Time,
        parse_target as parse_target,
        resolve as resolve,
        window as window,
    )
    from catalog.volume import Volumes as Volumes

_NAMES = {
    "catalog.checkpointer": ("CheckpointPolicy", "checkpoint_due", "make_checkpoint"),
    "catalog.errors": ("CatalogError",),
    "catalog.format.commit": (
        "NO_PARENT", "Bounds", "Codec", "Commit", "CommitKind", "Deletions", "ForkPoint", "SegmentRef",
        "SegmentView",
    ),
    "catalog.format.control": ("MAIN", "Control", "Fork", "Ref"),
    "catalog.format.encoding": ("StoredCommit", "encode_commit"),
    "catalog.format.ids": ("Sid", "Vid"),
    "catalog.format.keys": ("Key",),
    "catalog.history": ("History", "PastCommit"),
    "catalog.local_catalog": ("Attempt", "Handle", "LocalCatalog"),
    "catalog.objects": ("LocalStore", "MemoryStore", "ObjectInfo", "ObjectStore", "PartTag", "WithETag"),
    "catalog.refs.branch": ("Branch", "Branches"),
    "catalog.snapshot": ("Snapshot",),
    "catalog.timeline": (
        "Head", "Lsn", "Named", "Pinned", "Seq", "Target", "Time", "parse_target", "resolve", "window",
    ),
    "catalog.volume": ("Volumes",),
}  # fmt: skip
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module 'catalog' has no attribute {name!r}")
        from importlib import import_module

        globals()[name] = attribute = getattr(import_module(_HOMES[name]), name)
        return attribute

    def __dir__():
        return sorted({*globals(), *__all__})
