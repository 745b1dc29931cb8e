"""The modules that change a log or follow it, imported when one of their names is first used.

Half of the modules of a log are there to change it, and a look at a log ends without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "append",
    "batches",
    "changes",
    "checkpoint",
    "checkpoint_plan",
    "conditions",
    "eviction",
    "follow",
    "relocation",
    "sealed",
]

if TYPE_CHECKING:
    from seglog.maintenance import checkpoint, checkpoint_plan, eviction, relocation
    from seglog.reading import batches, follow, sealed
    from seglog.writing import append, changes, conditions
else:
    from seglog.base.lazy import LazyModule

    checkpoint, eviction = LazyModule("seglog.maintenance.checkpoint"), LazyModule("seglog.maintenance.eviction")
    checkpoint_plan = LazyModule("seglog.maintenance.checkpoint_plan")
    relocation = LazyModule("seglog.maintenance.relocation")
    batches, follow = LazyModule("seglog.reading.batches"), LazyModule("seglog.reading.follow")
    sealed, changes = LazyModule("seglog.reading.sealed"), LazyModule("seglog.writing.changes")
    append, conditions = LazyModule("seglog.writing.append"), LazyModule("seglog.writing.conditions")
