"""Runs Maven. A test that needs its answer is skipped if Maven is not here, or reaches no registry."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["run_maven"]

_UNREACHABLE = re.compile(
    r"Could not transfer artifact|Unknown host|Connection (refused|reset|timed out)|No route to host|"
    r"Network is unreachable|in offline mode|Name or service not known|Temporary failure in name resolution",
    re.IGNORECASE,
)


def run_maven(project: Path, *words: str, within_s: int) -> None:
    """Run Maven with `words` on a pom.xml. Any trouble but an absent registry fails the test."""
    if shutil.which("mvn") is None:
        pytest.skip("mvn is not here")
    command = ["mvn", "--batch-mode", "--quiet", "-Dstyle.color=never", "--file", str(project), *words]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"Maven did not end within {within_s} s: {' '.join(words)}")
    if run.returncode:
        output = run.stdout + run.stderr
        if _UNREACHABLE.search(output):
            pytest.skip(f"Maven cannot reach a registry: {output.strip().splitlines()[0]}")
        pytest.fail(f"Maven failed:\n{output[-4000:]}")
