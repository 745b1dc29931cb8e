"""A directory with the data directories of tenants, and requests to the daemon that serves it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import seglog
from offload.token_rights import Role, token_line
from tests.daemons import ServedDirectory

__all__ = ["BYTES", "TOKENS", "append", "ask", "make", "settings"]

BYTES = {"Content-Type": "application/octet-stream"}
TOKENS = (
    ("boss", Role.ADMIN, "*", ""),
    ("scraper", Role.METRICS, "*", ""),
    ("acme-ci", Role.ADMIN, "*", "acme"),
    ("globex-ci", Role.ADMIN, "*", "globex"),
    ("ghost-ci", Role.ADMIN, "*", "ghost"),
)


def make(root: Path, *names: str) -> Path:
    """Make a data directory for each name, with a remote of its own, and the token file."""
    for name in names:
        seglog.open(root / name).close()
        (root.parent / "bucket" / name).mkdir(parents=True, exist_ok=True)
        (root / name / "seglog.toml").write_text(f'[remote]\nurl = "{(root.parent / "bucket" / name).as_uri()}"\n')
    lines = [token_line(name, role, topics, f"secret-of-{name}", of) for name, role, topics, of in TOKENS]
    (root.parent / "tokens").write_text("\n".join(lines))
    (root.parent / "tokens").chmod(0o600)
    return root


def settings(root: Path) -> dict[str, str]:
    return {"SERVE_TOKEN_FILE": str(root.parent / "tokens")}


def ask(
    daemon: ServedDirectory, token: str, method: str, path: str, body: bytes | None = None
) -> tuple[int, Any, Mapping[str, str]]:
    headers = {**(BYTES if body is not None else {}), "Authorization": f"Bearer secret-of-{token}"}
    status, answer, told = daemon.ask(method, path, body, headers)
    return status, json.loads(answer) if answer.startswith(b"{") else answer, told


def append(daemon: ServedDirectory, token: str, value: bytes, prefix: str = "", topic: str = "t") -> tuple[int, Any]:
    return ask(daemon, token, "POST", f"{prefix}/topics/{topic}/records", value)[:2]
