"""The `seglog` command. Only this package reads the environment and writes to the terminal."""

from __future__ import annotations

from offload.cli.app import app, main

__all__ = ["app", "main"]
