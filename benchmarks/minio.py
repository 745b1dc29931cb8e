"""MinIO, if it is on PATH: a server in a separate process on a free loopback port, stopped at the end."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.s3_server import free_port

__all__ = ["PASSWORD", "USER", "serving_minio"]

USER = "benchbench"
PASSWORD = "benchbench"  # noqa: S105 - of a server that lives as long as the benchmark
_START_LIMIT_S = 30.0


@contextmanager
def serving_minio(
    program: str, directory: Path, user: str = USER, password: str = PASSWORD, **environment: str
) -> Iterator[str]:
    """Yield the endpoint's URL. The server stores its data in `directory`, which this function makes.

    `environment` has further settings of the server, such as `MINIO_KMS_SECRET_KEY`.
    """
    directory.mkdir()
    address = f"127.0.0.1:{free_port()}"
    server = subprocess.Popen(
        [program, "server", "--quiet", "--address", address, str(directory)],
        env={**os.environ, "HOME": str(directory), "MINIO_ROOT_USER": user, "MINIO_ROOT_PASSWORD": password}
        | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _await(f"http://{address}/minio/health/live", server)
        yield f"http://{address}"
    finally:
        server.terminate()
        server.wait()


def _await(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()  # noqa: S310 - our own server
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("MinIO did not start")
