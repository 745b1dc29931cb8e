"""The archive: a log's history in object storage. `attach` gives a log its cold tier.

The package imports a name when it is first used, because a Spark worker and `seglog --help` need few of them.
"""

from __future__ import annotations

from seglog.base.shadowing import shadowing_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from offload.archive import (
        Archive as Archive,
        OffloadResult as OffloadResult,
        Removed as Removed,
        Restored as Restored,
        attach as attach,
    )
    from offload.errors import OffloadError as OffloadError
    from offload.recovery import recover as recover
    from offload.reports import TopicStatus as TopicStatus
    from offload.settings import (
        CatalogSettings as CatalogSettings,
        ColdSettings as ColdSettings,
        OffloadSettings as OffloadSettings,
        Settings as Settings,
    )

_NAMES = {
    "offload.archive": ("Archive", "OffloadResult", "Removed", "Restored", "attach"),
    "offload.errors": ("OffloadError",),
    "offload.recovery": ("recover",),
    "offload.reports": ("TopicStatus",),
    "offload.settings": ("CatalogSettings", "ColdSettings", "OffloadSettings", "Settings"),
}  # fmt: skip
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)

if _foreign := shadowing_text("catalog"):
    raise ImportError(_foreign)

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module 'offload' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
