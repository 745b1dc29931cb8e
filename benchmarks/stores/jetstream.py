"""NATS JetStream on loopback, `sync_interval: always`, a stream on the disk to measure; client `nats-py`.

Its server is another process, so it has its own core on a machine with several cores. Each append is a request to it.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.slices import Unavailable

__all__ = ["SUBJECT", "connected", "running"]

SUBJECT = "bench"
_START_LIMIT_S = 20.0


@contextmanager
def running(directory: Path) -> Iterator[str]:
    """Yield the address of a separate server, stopped at the end. Raises `Unavailable`."""
    beside = Path(sys.executable).with_name("nats-server")
    binary = str(beside) if beside.exists() else shutil.which("nats-server")
    if binary is None:
        raise Unavailable("nats-server is not installed")
    try:
        import nats  # noqa: F401 - only to raise before the server starts
    except ImportError as error:
        raise Unavailable("nats-py is not installed") from error
    port = _free_port()
    settings = directory / "nats.conf"
    settings.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{directory.resolve()}", sync_interval: always }}\n'
    )
    server = subprocess.Popen([binary, "-c", settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await_answer(port, server)
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@asynccontextmanager
async def connected(address: str, *subjects: str) -> AsyncIterator[Any]:
    """Yield a JetStream context whose `publish(SUBJECT, value)` returns when the record is on the disk.

    With `subjects`, its stream keeps these.
    """
    import nats

    client = await nats.connect(address)
    try:
        stream = client.jetstream()
        await stream.add_stream(name=SUBJECT, subjects=[*subjects] or [SUBJECT])
        yield stream
    finally:
        await client.close()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _await_answer(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise Unavailable(f"nats-server ended with code {server.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise Unavailable(f"nats-server did not answer within {_START_LIMIT_S:.0f} s")
