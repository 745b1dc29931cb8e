"""Real daemons, and a client of each kind of address, that the tests of the client share."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import seglog
from seglog.client import Client, Retries
from tests.certificates import certificate
from tests.daemons import ServedDirectory, served

TOKEN = "correct-horse-battery-staple"
PATIENT = Retries(total_s=60, least_s=0.001, most_s=0.05)


@dataclass
class Place:
    """A running daemon with TLS and a token, and the ways to it."""

    daemon: ServedDirectory
    directory: Path
    ca_file: Path

    def url(self, kind: str) -> str:
        return f"unix:{self.directory}" if kind == "unix" else f"https://localhost:{self.daemon.port}"

    def connect(self, kind: str, retries: Retries = PATIENT) -> Client:
        token, ca_file = (None, None) if kind == "unix" else (TOKEN, self.ca_file)
        return seglog.connect(self.url(kind), token=token, ca_file=ca_file, retries=retries)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    # The address of a Unix socket has 108 bytes at most. The path of this directory is longer.
    directory = tmp_path_factory.mktemp("d" * 120)
    seglog.open(directory).close()
    public, key = certificate(directory)
    token = directory / "token"
    token.write_text(TOKEN)
    variables = {"TLS_CERTIFICATE": str(public), "TLS_KEY": str(key), "TOKEN_FILE": str(token)}
    with served(directory, "", **{f"SERVE_{name}": text for name, text in variables.items()}) as daemon:
        yield Place(daemon, directory, public)


@pytest.fixture(params=["unix", "https"])
def client(request: pytest.FixtureRequest, place: Place) -> Iterator[Client]:
    with place.connect(request.param) as made:
        yield made


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of a topic that no other test has."""
    return "".join(each if each.isalnum() else "-" for each in request.node.name)[:100]


@pytest.fixture
def free_port() -> Callable[[], int]:
    def find() -> int:
        with socket.create_server(("127.0.0.1", 0)) as one:
            return int(one.getsockname()[1])

    return find
