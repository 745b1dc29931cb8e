"""The rooms that change a log or follow it, imported when a name of them is first used.

Half of the modules of a log are there to change it, and a look at a log ends without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seglog.format.arrays import dtypes, np

__all__ = [
    "append",
    "batches",
    "changes",
    "checkpoint",
    "conditions",
    "eviction",
    "follow",
    "import_now",
    "plan",
    "relocation",
    "sealed",
]

if TYPE_CHECKING:
    from seglog.maintenance import checkpoint, eviction, plan, relocation
    from seglog.reading import batches, follow, sealed
    from seglog.writing import append, changes, conditions
else:
    from seglog.base.later import Later

    checkpoint, eviction = Later("seglog.maintenance.checkpoint"), Later("seglog.maintenance.eviction")
    plan, relocation = Later("seglog.maintenance.plan"), Later("seglog.maintenance.relocation")
    batches, follow = Later("seglog.reading.batches"), Later("seglog.reading.follow")
    sealed, changes = Later("seglog.reading.sealed"), Later("seglog.writing.changes")
    append, conditions = Later("seglog.writing.append"), Later("seglog.writing.conditions")


def import_now() -> None:
    """Import all that a change needs, before a log is opened for changes.

    Later, a lack of memory, rights or file descriptors would fail it half-way.
    """
    import logging  # noqa: F401 - of the first warning

    import seglog.writing.stream  # noqa: F401 - of the first `append_stream`

    dtypes.ENTRIES, np.zeros  # noqa: B018 - the first use of a name imports its module
    for module in (append, batches, checkpoint, conditions, eviction, follow, plan, relocation, sealed, changes):
        module.__name__  # noqa: B018 - the same
