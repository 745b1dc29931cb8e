"""Runs the tests of Spark's readers on another Spark than the one of the lock file: `make test-spark VERSION=3.5`.

pip brings that Spark into build/spark-VERSION, which Python then looks into first. Sockets that an older pyspark leaves
open fail no test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["OTHER_SPARKS", "install", "run"]

OTHER_SPARKS = ("3.5", "4.0", "4.1", "4.2")
_ROOT = Path(__file__).parents[4]
_OPTIONS = ("-q", "-n", "2", "-m", "not soak", "-p", "no:cacheprovider", "-p", "no:unraisableexception")


def install(version: str) -> Path:
    """Return the folder of the newest release of a minor version. Fails if no registry has it."""
    folder = _ROOT / "build" / f"spark-{version}"
    if not list(folder.glob("pyspark-*.dist-info")):
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), f"pyspark=={version}.*"]
        subprocess.run(command, check=True, capture_output=True, text=True)
    return folder


def run(version: str) -> subprocess.CompletedProcess[str]:
    """Run the tests, and return the process with what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(install(version)), "SEGLOG_TEST_SPARK": version}
    command = [sys.executable, "-m", "pytest", *_OPTIONS, "tests/offload/spark"]
    return subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)


def main() -> int:
    ran = run(sys.argv[1])
    print(ran.stdout)
    return ran.returncode


if __name__ == "__main__":
    raise SystemExit(main())
