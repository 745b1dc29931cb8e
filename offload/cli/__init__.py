"""The command line of `seglog`: it parses the words, runs a use case, and prints the result.

`offload.main` is the entry point.
"""

from __future__ import annotations

from offload.cli.app import app

__all__ = ["app"]
