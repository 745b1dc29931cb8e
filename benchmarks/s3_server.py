"""A separate S3 server for one benchmark: moto's, as a process on a free loopback port, stopped at the end."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3

__all__ = ["BUCKET", "empty_bucket", "free_port", "running"]

BUCKET = "bench"
_START_LIMIT_S = 30.0


@contextmanager
def running() -> Iterator[str]:
    """Yield the endpoint's URL. Meanwhile the AWS environment of this process points there."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    before = dict(os.environ)
    os.environ.update(
        AWS_ENDPOINT_URL=endpoint,
        AWS_ACCESS_KEY_ID="bench",
        AWS_SECRET_ACCESS_KEY="bench",  # noqa: S106 - the server takes any
        AWS_DEFAULT_REGION="us-east-1",
    )
    try:
        _await_answer(endpoint, server)
        yield endpoint
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.terminate()
        server.wait()


def empty_bucket(endpoint: str) -> Any:
    """Delete all that the server holds, create an empty bucket, and return a boto3 client."""
    _ask(endpoint, "POST", "/moto-api/reset")
    client = boto3.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket=BUCKET)
    return client


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _ask(endpoint: str, method: str, path: str) -> None:
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=30)
    try:
        connection.request(method, path)
        connection.getresponse().read()
    finally:
        connection.close()


def _await_answer(endpoint: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"moto's server ended with code {server.returncode}")
        try:
            _ask(endpoint, "GET", "/moto-api/")
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"moto's server did not answer within {_START_LIMIT_S:.0f} s")
