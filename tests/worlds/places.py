"""A daemon with TLS and a token, and the ways to it."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from pathlib import Path

import seglog
from seglog.client import Client, Retries
from tests.daemons import ServedDirectory

__all__ = ["PATIENT", "TOKEN", "Place"]

TOKEN = "correct-horse-battery-staple"
PATIENT = Retries(total_s=60, least_s=0.001, most_s=0.05)


@dataclass
class Place:
    """A running daemon with TLS and a token, and the ways to it."""

    daemon: ServedDirectory
    directory: Path
    ca_file: Path

    def url(self, kind: str) -> str:
        return f"unix:{self.directory}" if kind == "unix" else f"https://localhost:{self.daemon.port}"

    def call(self, command: str, **given: object) -> None:
        """Run a command."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        tls = ssl.create_default_context(cafile=str(self.ca_file))
        status, body, _ = self.daemon.ask("POST", f"/rpc/{command}", json.dumps(given).encode(), headers, tls=tls)
        assert status == 200, body

    def connect(self, kind: str, retries: Retries = PATIENT) -> Client:
        token, ca_file = (None, None) if kind == "unix" else (TOKEN, self.ca_file)
        return seglog.connect(self.url(kind), token=token, ca_file=ca_file, retries=retries)
