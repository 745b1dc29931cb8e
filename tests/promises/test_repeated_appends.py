"""A batch that a client repeats over HTTP is in the log once, whatever happens to its requests and to the daemon.

The client repeats each batch until it gets a definite answer, and never learns more than that. A front cuts, delays and
repeats requests (tests.faults.cut_requests), or the parent kills the daemon. Then the log has each record once, in
order, at the seq of its answer.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import random
import re
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import seglog
from tests.daemons import ServedDirectory, served
from tests.faults.cut_requests import FAULTS, CuttingFront
from tests.work import amounts, seed_of, tell

BATCHES, RECORDS = 4, 3
POSITIONS = 6
Plan = dict[int, str]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    place = tmp_path_factory.mktemp("repeated")
    seglog.open(place / "data").close()
    with served(place / "data", (place / "remote").as_uri()) as daemon:
        yield daemon
        assert not [line for line in daemon.lines if "Traceback" in line]


def plans() -> list[Plan]:
    """Return every single fault, and every pair of faults, over the requests of a short script."""
    single = [{at: fault} for at in range(POSITIONS) for fault in FAULTS]
    pairs = [
        {first: one, second: other}
        for first, second in itertools.combinations(range(POSITIONS), 2)
        for one, other in itertools.product(FAULTS, FAULTS)
    ]
    return single + pairs


@pytest.mark.parametrize("identity", ["producer", "key"])
@pytest.mark.parametrize("share", [1 / 12, pytest.param(1.0, marks=pytest.mark.soak(part=2))])
def test_single_faults_and_pairs_of_requests_double_and_lose_nothing(
    daemon: ServedDirectory, identity: str, share: float
) -> None:
    rng = random.Random(seed_of(f"cuts of {identity}"))
    chosen = [plan for plan in plans() if rng.random() < share]
    requests = faults = 0
    with CuttingFront(daemon.port) as front:
        for number, plan in enumerate(chosen):
            topic = f"{identity}-{share:.0f}-{number}"
            front.begin(plan)
            seqs = [
                _append(front.port, topic, _headers(identity, batch), _values(topic, batch)) for batch in range(BATCHES)
            ]
            requests, faults = requests + front.requests, faults + len(front.hit)
            front.begin({})
            lines = daemon.ask("GET", f"/topics/{topic}/records")[1].splitlines()
            found = [(record["seq"], record["value"]) for record in map(json.loads, lines)]
            values = [value for batch in range(BATCHES) for value in _values(topic, batch)]
            assert found == list(enumerate(values, 1)), plan
            assert seqs == list(range(1, BATCHES * RECORDS + 1, RECORDS)), plan
    assert faults >= len(chosen)
    records = len(chosen) * BATCHES * RECORDS
    tell(
        f"{identity}: {len(chosen)} plans, {faults} faults in {requests} requests, {records} records; lost 0, doubled 0"
    )


def _values(topic: str, batch: int) -> list[str]:
    return [f"{topic} {batch}.{number}" for number in range(RECORDS)]


def _headers(identity: str, batch: int) -> dict[str, str]:
    if identity == "key":
        return {"Idempotency-Key": f"batch {batch}"}
    return {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(batch)}


def _append(port: int, topic: str, headers: Mapping[str, str], values: Iterable[str]) -> int:
    """Append until there is a definite answer. Return the first seq."""
    body = "".join(f"{value}\n" for value in values)
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                kind = {"Content-Type": "application/vnd.seglog.lines"}
                connection.request("POST", f"/topics/{topic}/records", body, {**kind, **headers})
                answer = connection.getresponse()
                told = json.loads(answer.read())
            finally:
                connection.close()
            assert answer.status in {200, 201}, told
            return int(told["first_seq"])


@dataclass
class _Client(threading.Thread):
    """A producer. It repeats a batch over all daemons of a directory until it has an answer. `acked` are first seqs."""

    directory: Path
    number: int
    stop: threading.Event
    acked: list[int] = field(default_factory=list)
    failed: int = 0
    duplicates: int = 0
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self.acked.append(self._append(len(self.acked)))
        except BaseException as error:
            self.failure = error

    def _append(self, batch: int) -> int:
        values = [self.value(batch, number) for number in range(RECORDS)]
        headers = {"Content-Type": "application/vnd.seglog.lines", "Producer-Id": f"p{self.number}"}
        headers |= {"Producer-Epoch": "0", "Producer-Seq": str(batch)}
        while True:
            try:
                connection = http.client.HTTPConnection("localhost", timeout=60)
                connection.sock = socket.socket(socket.AF_UNIX)
                with contextlib.closing(connection):
                    connection.sock.connect(str(self.directory / "seglog.sock"))
                    connection.request("POST", "/topics/t/records", "".join(f"{each}\n" for each in values), headers)
                    answer = connection.getresponse()
                    told = json.loads(answer.read())
            except (OSError, http.client.HTTPException, ValueError):
                self.failed += 1
                time.sleep(0.005)
                continue
            assert answer.status in {200, 201}, told
            self.duplicates += answer.status == 200
            return int(told["first_seq"])

    def value(self, batch: int, number: int) -> str:
        return f"{self.number} {batch} {number} {'.' * (batch * 37 % 2_000)}"


@amounts(2, soak=1_000, part=2)
def test_clients_repeat_while_the_daemon_is_killed(tmp_path: Path, amount: int) -> None:
    rng, total = random.Random(seed_of("kills of daemons")), Counter[str]()
    for first in range(0, amount, 50):
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
        total += _shoot(tmp_path, min(50, amount - first), rng)
    assert total["records"] > 0
    assert total["failed requests"] > 0
    told = ", ".join(f"{count} {what}" for what, count in total.items())
    tell(f"{amount} kills, {told}; lost 0, doubled 0, reordered 0")


def _shoot(place: Path, kills: int, rng: random.Random) -> Counter[str]:
    directory, stop = place / "data", threading.Event()
    seglog.open(directory).close()
    clients = [_Client(directory, number, stop) for number in range(3)]
    try:
        for shot in range(kills):
            with served(directory, (place / "remote").as_uri(), SERVE_HOST="127.0.0.1"):
                if not shot:
                    for client in clients:
                        client.start()
                time.sleep(rng.uniform(0.0, 0.25))
        with served(directory, (place / "remote").as_uri()):
            stop.set()
            for client in clients:
                client.join(60)
    finally:
        stop.set()
    for client in clients:
        assert client.failure is None, client.failure
    with seglog.open(directory) as log:
        found = [record.value.decode() for record in log.topic("t").read()]
    for client in clients:
        own = [value for value in found if value.startswith(f"{client.number} ")]
        assert own == [client.value(batch, number) for batch in range(len(client.acked)) for number in range(RECORDS)]
        for batch, first_seq in enumerate(client.acked):
            assert found[first_seq - 1] == client.value(batch, 0)
    return Counter(
        {
            "records": len(found),
            "batches": sum(len(client.acked) for client in clients),
            "failed requests": sum(client.failed for client in clients),
            "repetitions of a batch that was in": sum(client.duplicates for client in clients),
        }
    )


@amounts(64, soak=1_024, part=2)
def test_a_long_body_takes_little_memory(tmp_path: Path, amount: int) -> None:
    queue_mib, mib = 8, 1024 * 1024
    seglog.open(tmp_path / "data").close()
    remote = (tmp_path / "remote").as_uri()
    value = random.Random(1).randbytes(16 * 1024 - 4)
    piece = (len(value).to_bytes(4, "little") + value) * 64
    with served(tmp_path / "data", remote, LOG_QUEUE_MAX_BYTES=str(queue_mib * mib)) as daemon:
        _send_mib(daemon, "warm", piece, 24)
        before = _peak_bytes(daemon)
        answer = _send_mib(daemon, "long", piece, amount)
        grown = _peak_bytes(daemon) - before
        assert answer == amount * 64
        assert grown <= (queue_mib + 32) * mib
        tell(f"a body of {amount} MiB: the daemon grows by {grown / mib:.1f} MiB, queue_max_bytes is {queue_mib} MiB")


def _send_mib(daemon: ServedDirectory, topic: str, piece: bytes, amount: int) -> int:
    """Append so many pieces of a MiB as one body. Return the number of records."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)) as connection:
        headers = {"Content-Type": "application/vnd.seglog.values", "Content-Length": str(amount * len(piece))}
        connection.request("POST", f"/topics/{topic}/records", iter([piece] * amount), headers)
        answer = connection.getresponse()
        told = json.loads(answer.read())
        assert answer.status == 201, told
        return int(told["appended"])


def _peak_bytes(daemon: ServedDirectory) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{daemon.process.pid}/status").read_text())
    assert found
    return int(found[1]) * 1024
