"""Writes the golden list of the modules that commands import: `python -m tests.golden.make_modules`.

The list has our own modules, and the packages of others. Modules of Python itself differ between its versions.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.daemons import served

GOLDEN = Path(__file__).parent / "modules.txt"
OURS = {"catalog", "offload", "seglog"}
OTHERS = {"blake3", "boto3", "click", "google_crc32c", "numpy", "obstore", "prometheus_client", "pyroaring", "rich",
          "starlette", "structlog", "typer", "uvicorn", "xxhash", "zstandard"}  # fmt: skip
ALONE = ("--version", "--help", "read --help", "__complete re")
SERVED = ("status", "read t", "topic list", "seal t", "offload t", "log t")


def imported(directory: Path, words: str) -> list[str]:
    """Run a command, and return the modules that it imports."""
    command = [sys.executable, "-X", "importtime", "-m", "offload", *words.split()]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    names = re.findall(r"^import time:.*\| +([\w.]+)$", done.stderr, re.MULTILINE)
    packages = {name for name in names if name.partition(".")[0] in OURS or name in OTHERS}
    return sorted(packages)


def make(directory: Path) -> Iterator[str]:
    """Yield a section for each command. `directory` is empty."""
    remote = (directory / "remote").as_uri()
    data = directory / "data"
    subprocess.run([sys.executable, "-m", "offload", "-C", str(data), "init", "--remote", remote], check=True)
    (data / "lines").write_bytes(b"a\n")
    subprocess.run([sys.executable, "-m", "offload", "-C", str(data), "append", "t", str(data / "lines")], check=True)
    for words in ALONE:
        yield "\n  ".join([f"seglog {words}", *imported(data, words)])
    with served(data, remote):
        for words in SERVED:
            yield "\n  ".join([f"seglog {words}, with a daemon", *imported(data, words)])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        GOLDEN.write_text("\n".join(make(Path(name))) + "\n")
