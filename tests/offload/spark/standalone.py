"""A standalone cluster of Spark: a master, and two workers with two addresses, each for one executor.

The workers have two addresses, because Spark tries no task twice at a time on one host.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

__all__ = ["SPARK", "Standalone", "await_port", "free_port", "running_cluster"]

SPARK = Path(pyspark.__file__).parent
STARTS_WITHIN_S = 120
_SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.ui.enabled": "false",
    "spark.master.rest.enabled": "false",  # it knows no authentication
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class Standalone:
    """`environment` is that of a driver. Its jobs run in `directory`, which has the logs of all parts."""

    master: str
    environment: Mapping[str, str]
    directory: Path

    @property
    def submit(self) -> list[str]:
        """The words before the name of a job."""
        return [str(SPARK / "bin" / "spark-submit"), "--master", self.master]


@contextmanager
def running_cluster(directory: Path, settings: Mapping[str, str], variables: Mapping[str, str]) -> Iterator[Standalone]:
    """Start a cluster whose drivers have these settings of Spark and these variables.

    The workers have no variable of AWS, so Spark brings all that the executors have.
    """
    lines = [f"{name} {text}\n" for name, text in {**_SETTINGS, **settings}.items()]
    (directory / "spark-defaults.conf").write_text("".join(lines))
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    bare = {
        **{name: text for name, text in os.environ.items() if not name.startswith(("AWS_", "SEGLOG_", "PYSPARK_"))},
        "SPARK_CONF_DIR": str(directory),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": sys.executable,
    }
    with ExitStack() as stack:

        def start(name: str, host: str, *arguments: str) -> None:
            log = stack.enter_context((directory / f"{arguments[-1].rpartition('/')[2]}.log").open("w"))
            command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", host]
            process = subprocess.Popen([*command, "--webui-port", "0", *arguments], env=bare, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)

        start("master.Master", "127.0.0.1", "--port", str(port))
        await_port(port)
        for host in ("127.0.0.1", "127.0.0.2"):
            work = directory / "work" / host
            start("worker.Worker", host, "--cores", "1", "--memory", "1g", master, "--work-dir", str(work))
        yield Standalone(master, {**bare, **variables}, directory)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def await_port(port: int) -> None:
    """Wait until a process listens there. Fails after `STARTS_WITHIN_S`."""
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"no process listens on port {port}")
