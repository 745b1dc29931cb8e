"""The file seglog.toml: read it, check it, and write it with the defaults as comments.

`read_sections` returns all sections and checks none. Each section belongs to the package that reads it. A key that an
older release had in another section is returned in the section of today (`MOVED` of seglog.values.setting).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seglog.base.arguments import checked
from seglog.errors import InvalidSetting
from seglog.files.port import OsFiles, replace_atomically
from seglog.values.config import NO_VARIABLES, SETTINGS_FILE, LogSettings
from seglog.values.setting import from_section, moved, toml_lines

__all__ = ["default_toml", "load_settings", "read_sections", "write_default"]


@checked
def read_sections(path: Path) -> dict[str, Any]:
    """Return the sections of the TOML file at `path`; none if there is no file.

    Raise `InvalidSetting` if the file cannot be read or is not TOML.
    """
    try:
        text = path.read_bytes().decode()
        return moved(tomllib.loads(text))
    except FileNotFoundError:
        return {}
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSetting(path.name, f"the file is not TOML: {error}") from error
    except OSError as error:
        raise InvalidSetting(path.name, f"the file cannot be read: {error.strerror}") from error


@checked
def load_settings(path: Path, variables: Mapping[str, str] = NO_VARIABLES) -> LogSettings:
    """Return the settings in the seglog.toml at `path`; the defaults if there is no file.

    `variables` is the environment, which wins. Raise `InvalidSetting`, which names the key.
    """
    return from_section(LogSettings, read_sections(path).get(LogSettings.SECTION, {}), variables)


@checked
def default_toml(remote: str | None = None) -> str:
    """Return the text of a new seglog.toml. `remote` is the URL of the archive, if it is known already."""
    url = '# url = "s3://bucket/prefix"' if remote is None else f"url = {json.dumps(remote, ensure_ascii=False)}"
    return f"""\
# Settings of this seglog data directory. A line that is commented out shows the default.

{toml_lines(LogSettings)}
[remote]
# Where the history goes: s3://bucket/prefix or file:///path.
{url}
"""


@checked
def write_default(directory: Path, remote: str | None = None) -> None:
    """Write a new seglog.toml into `directory`, durably on return."""
    replace_atomically(OsFiles(), directory / SETTINGS_FILE, default_toml(remote).encode())
