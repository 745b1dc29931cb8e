"""The parts of the settings that a reload replaces."""

from __future__ import annotations

from dataclasses import dataclass

from offload.settings import CatalogSettings, OffloadSettings, ServeSettings, TenantSettings
from offload.settings_file import Settings

__all__ = ["LiveSettings"]


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """One version of these parts. All other settings bind at the start."""

    serve: ServeSettings
    offload: OffloadSettings
    catalog: CatalogSettings
    tenant: TenantSettings
    disk_reject_bytes: int  # of the section [log], whose other settings bind at the start

    @classmethod
    def of(cls, settings: Settings) -> LiveSettings:
        """Return the parts. Raise `InvalidSetting` if a value of one is not allowed."""
        return cls(settings.serve, settings.offload, settings.catalog, settings.tenant, settings.log.disk_reject_bytes)
