"""The scenes by their names."""

from __future__ import annotations

from pathlib import Path

from tests.races.archives import Archives
from tests.races.commands import COMMANDS, Commands
from tests.races.routes import STREAMS, TOKENS, TOPICS, Routes
from tests.races.serial import Scene

__all__ = ["SCENES", "scene_of"]

_ROUTES = {"topics": TOPICS, "streams": STREAMS, "tokens": TOKENS}
SCENES = (*_ROUTES, "commands", "archives")


def scene_of(name: str, folder: Path) -> Scene:
    if name == "archives":
        return Archives()
    return Commands(name, COMMANDS, folder) if name == "commands" else Routes(name, _ROUTES[name], folder)
