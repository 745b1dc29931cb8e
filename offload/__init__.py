"""The archive: a log's history in object storage. `attach` gives a log its cold tier.

The package imports a name when it is first used, because a Spark worker and `seglog --help` need few of them.
"""

from __future__ import annotations

from seglog.base.shadowing import shadowing_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from offload.archive import Archive, OffloadResult, Removed, Restored, attach
    from offload.errors import OffloadError
    from offload.recovery import recover
    from offload.reports import TopicStatus
    from offload.settings import CatalogSettings, ColdSettings, OffloadSettings, Settings

__all__ = [
    "Archive",
    "CatalogSettings",
    "ColdSettings",
    "OffloadError",
    "OffloadResult",
    "OffloadSettings",
    "Removed",
    "Restored",
    "Settings",
    "TopicStatus",
    "attach",
    "recover",
]

_HOME = {
    "CatalogSettings": "offload.settings",
    "ColdSettings": "offload.settings",
    "OffloadError": "offload.errors",
    "OffloadSettings": "offload.settings",
    "Settings": "offload.settings",
    "TopicStatus": "offload.reports",
    "recover": "offload.recovery",
}

if _foreign := shadowing_text("catalog"):
    raise ImportError(_foreign)

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'offload' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_HOME.get(name, "offload.archive")), name)
