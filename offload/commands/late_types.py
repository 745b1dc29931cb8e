"""The types that the modules of the commands import for type checking only.

Their import takes longer than all the rest of `seglog --help`. A command that runs needs them.
"""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["late_types"]


@functools.cache
def late_types() -> dict[str, Any]:
    """Return the types by the names that signatures and results use."""
    from offload.archive import Archive, TopicStatus
    from offload.commands.directory import Directory
    from offload.write.runs import RunStatus
    from seglog import Log

    kinds = (Archive, Directory, Log, RunStatus, TopicStatus)
    return {kind.__name__: kind for kind in kinds}
