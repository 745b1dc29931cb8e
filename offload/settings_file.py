"""Read the seglog.toml of a data directory with all its sections: one read gives one `Settings`.

    settings = read_settings(directory / "seglog.toml", os.environ)
    log = seglog.open(directory, settings=settings.log)
    archive = offload.attach(log, settings=settings)

A command reads the file once, and a reload of the daemon too, so that it sees one version of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from offload.settings import (
    CatalogSettings,
    CliSettings,
    ColdSettings,
    OffloadSettings,
    ServeSettings,
    TenantSettings,
)
from seglog.errors import InvalidSetting
from seglog.files.settings_file import default_toml, read_sections
from seglog.values.config import NO_VARIABLES, LogSettings
from seglog.values.setting import Setting, from_section, settings_of, toml_lines

__all__ = ["SETTINGS", "Settings", "default_file", "read_settings"]

_KINDS = (OffloadSettings, ColdSettings, CatalogSettings, ServeSettings, TenantSettings, CliSettings)
_SECTIONS = (LogSettings.SECTION, "remote", *(kind.SECTION for kind in _KINDS))
_Part = TypeVar("_Part")

SETTINGS: tuple[Setting, ...] = tuple(
    setting for kind in (LogSettings, *_KINDS) for setting in settings_of(kind).values()
)
"""The settings of all sections except [remote], whose only key is the URL."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One version of seglog.toml, and the environment, which wins. Each section is a part.

    `Settings()` has the defaults.

    A part checks its section when the caller asks for it, so a mistake in [serve] stops no append. It raises
    `InvalidSetting`. `log` ignores the other sections, as `seglog.open` does. Every other part refuses an unknown
    section.
    """

    sections: Mapping[str, Any] = field(default_factory=dict[str, Any])
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    parts: Mapping[type, Any] = field(default_factory=dict[type, Any])

    def for_tenant(self, name: str) -> Settings:
        """Return settings whose [tenant] has this name, if it has none. An empty `name` changes nothing."""
        section = self.sections.get(TenantSettings.SECTION, {})
        if not name or not isinstance(section, dict):
            return self
        named = {**section, "name": section.get("name") or name}
        return replace(self, sections={**self.sections, TenantSettings.SECTION: named})

    def with_parts(
        self, *parts: OffloadSettings | ColdSettings | CatalogSettings | ServeSettings | TenantSettings
    ) -> Settings:
        """Return settings in which `parts` take the place of their sections."""
        return replace(self, parts={**self.parts, **{type(part): part for part in parts}})

    @property
    def log(self) -> LogSettings:
        return from_section(LogSettings, self.sections.get(LogSettings.SECTION, {}), self.variables)

    @property
    def url(self) -> str | None:
        """Return the URL of the remote, or None."""
        self._check_sections()
        url: str | None = self.sections.get("remote", {}).get("url")
        return url

    @property
    def offload(self) -> OffloadSettings:
        return self._part(OffloadSettings)

    @property
    def cold(self) -> ColdSettings:
        return self._part(ColdSettings)

    @property
    def catalog(self) -> CatalogSettings:
        return self._part(CatalogSettings)

    @property
    def serve(self) -> ServeSettings:
        return self._part(ServeSettings)

    @property
    def tenant(self) -> TenantSettings:
        return self._part(TenantSettings)

    @property
    def cli(self) -> CliSettings:
        return self._part(CliSettings)

    def _part(self, kind: type[_Part]) -> _Part:
        self._check_sections()
        name = kind.SECTION  # type: ignore[attr-defined]
        found = from_section(kind, self.sections.get(name, {}), self.variables)
        part: _Part = self.parts.get(kind, found)
        return part

    def _check_sections(self) -> None:
        for name, section in self.sections.items():
            if name not in _SECTIONS:
                raise InvalidSetting(name, f"is unknown; the sections are {', '.join(_SECTIONS)}")
            if not isinstance(section, dict):
                raise InvalidSetting(name, f"is a section: write [{name}] and the keys below it")
        for key, value in self.sections.get("remote", {}).items():
            if key != "url" or not isinstance(value, str):
                raise InvalidSetting(f"remote.{key}", "the only key is url, a text")


def read_settings(path: Path, variables: Mapping[str, str] = NO_VARIABLES) -> Settings:
    """Return the settings in the seglog.toml at `path`; the defaults if there is no file.

    `variables` is the environment. Raises `InvalidSetting` if the file cannot be read or is not TOML.
    """
    return Settings(read_sections(path), dict(variables))


def default_file(remote: str | None = None, tenant: TenantSettings | None = None) -> str:
    """Return the seglog.toml that `seglog init` writes: every key with its default, commented out.

    If `tenant` is given, its section has these values.
    """
    sections = [toml_lines(kind, tenant if kind is TenantSettings else None) for kind in _KINDS]
    return "\n".join([default_toml(remote), *sections])
