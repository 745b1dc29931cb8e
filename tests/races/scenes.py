"""The scenes by their names."""

from __future__ import annotations

from pathlib import Path

from tests.races.archives import Archives
from tests.races.routes import STREAMS, TOKENS, TOPICS, Routes
from tests.races.serial import Scene

__all__ = ["SCENES", "scene_of"]

_ROUTES = {"topics": TOPICS, "streams": STREAMS, "tokens": TOKENS}
SCENES = (*_ROUTES, "archives")


def scene_of(name: str, folder: Path) -> Scene:
    return Archives() if name == "archives" else Routes(name, _ROUTES[name], folder)
