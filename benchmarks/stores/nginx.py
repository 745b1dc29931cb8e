"""nginx as a cache in front of an origin: `proxy_cache` with `slice 1m`, as many workers as cores, sendfile.

It signs nothing and checks nothing, so its origin must take requests without a signature.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.s3_server import free_port
from benchmarks.slices import Unavailable

__all__ = ["running"]

_START_LIMIT_S = 20.0
_CONF = """
daemon off;
user {user} {group};
worker_processes auto;
pid {place}/pid;
events {{}}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    proxy_cache_path {place}/cache keys_zone=objects:10m max_size=8g inactive=1h;
    upstream origin {{ server {origin}; keepalive 16; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            slice 1m;
            proxy_cache objects;
            proxy_cache_key $uri$slice_range;
            proxy_cache_valid 200 206 1h;
            proxy_set_header Range $slice_range;
            proxy_set_header Connection "";
            proxy_http_version 1.1;
            proxy_pass http://origin;
        }}
    }}
}}
"""


@contextmanager
def running(directory: Path, origin: str) -> Iterator[int]:
    """Yield the port of a separate server, stopped at the end. Raises `Unavailable`."""
    beside = Path(sys.executable).with_name("nginx")
    binary = str(beside) if beside.exists() else shutil.which("nginx")
    if binary is None:
        raise Unavailable("nginx is not installed")
    place, port = directory.resolve(), free_port()
    place.mkdir()
    user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(os.getegid()).gr_name
    settings = place / "nginx.conf"
    settings.write_text(
        _CONF.format(user=user, group=group, place=place, port=port, origin=origin.removeprefix("http://"))
    )
    server = subprocess.Popen([binary, "-e", str(place / "errors"), "-c", str(settings)], stderr=subprocess.DEVNULL)
    try:
        _await_answer(port, server)
        yield port
    finally:
        server.terminate()
        server.wait()


def _await_answer(port: int, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < end and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    raise Unavailable("nginx does not start")
