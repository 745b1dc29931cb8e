"""The archive: a log's history in object storage. `attach` gives a log its cold tier.

The package imports a name when it is first used, because a Spark worker and `seglog --help` need few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offload.archive import Archive, OffloadResult, Removed, Restored, TopicStatus
    from offload.attachment import attach
    from offload.errors import OffloadError
    from offload.recovery import recover
    from offload.settings import ColdSettings, OffloadSettings

__all__ = [
    "Archive",
    "ColdSettings",
    "OffloadError",
    "OffloadResult",
    "OffloadSettings",
    "Removed",
    "Restored",
    "TopicStatus",
    "attach",
    "recover",
]

_HOME = {
    "ColdSettings": "offload.settings",
    "OffloadError": "offload.errors",
    "OffloadSettings": "offload.settings",
    "attach": "offload.attachment",
    "recover": "offload.recovery",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'offload' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME.get(name, "offload.archive")), name)
