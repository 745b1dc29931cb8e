"""The types in the signature of a command, and of the fields of a result.

The modules of the commands import some of these types for type checking only. Their import takes longer than all the
rest of `seglog --help`. A command that runs needs them.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from typing import Any

__all__ = ["hints_of"]


@functools.cache
def hints_of(subject: Any) -> Mapping[str, Any]:
    """Return the types of a function's parameters and result, or of a class's fields, by name."""
    from offload.archive import Archive, TopicStatus
    from offload.commands.directory import Directory
    from offload.services.diff import Side
    from offload.write.runs import RunStatus
    from seglog import Log

    late = {kind.__name__: kind for kind in (Archive, Directory, Log, RunStatus, Side, TopicStatus)}
    return typing.get_type_hints(subject, localns=late)
