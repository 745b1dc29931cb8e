"""A program of `credential_process` around another one: `executors_program.py RUNS SECONDS COMMAND...`.

It runs the command, and says of its credentials that they end after so many seconds. Each run is a line of the file
RUNS: where it ran, and what it printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta


def main(runs: str, seconds: str, *command: str) -> None:
    printed = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    printed["Expiration"] = (datetime.now(UTC) + timedelta(seconds=float(seconds))).isoformat()
    # Spark sets this variable for an executor, which has a directory of its own.
    run = {"place": os.environ.get("SPARK_EXECUTOR_DIRS", "driver"), **printed}
    line = os.open(runs, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(line, json.dumps(run).encode() + b"\n")
    os.close(line)
    print(json.dumps(printed))


if __name__ == "__main__":
    main(*sys.argv[1:])
