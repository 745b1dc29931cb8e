"""Each record of a producer, or of an append with a key, is there once, whatever a proxy does to the requests."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import seglog
from seglog import AppendUnknown, BatchReused, ProducerBatch, Record
from seglog.client import Batching, Client, Retries
from tests.daemons import ServedDirectory, served
from tests.seglog.client.cutting_proxy import FATES, proxied
from tests.work import amounts, seed_of, tell

QUICK = Retries(total_s=60, least_s=0.001, most_s=0.02)
FAULTS = [fate for fate in FATES if fate != "pass"]
#: HTTP forbids a proxy to repeat a POST by itself and to pass the second answer (RFC 9110, 9.2.2).
LAWFUL = [fate for fate in FAULTS if fate != "twice"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    directory = tmp_path_factory.mktemp("data")
    seglog.open(directory).close()
    with served(directory, "") as running:
        yield running


def values_of(client: Client, topic: str) -> list[bytes]:
    return [each.value for each in client.topic(topic).read() if isinstance(each, Record)]


def client_of(port: int, retries: Retries = QUICK) -> Client:
    return seglog.connect(f"http://127.0.0.1:{port}", retries=retries)


def produced(client: Client, topic: str, count: int, *, of_records: int = 3) -> int:
    """Send values of so many batches, and return how many batches came before a lower one."""
    batching = Batching(batch_records=of_records, linger_s=60)
    with client.topic(topic).producer("p", epoch=1, batching=batching) as producer:
        for number in range(count * of_records):
            producer.send(b"%d" % number)
    assert producer.acked == count * of_records
    return producer.early


def plan_of(faults: dict[int, str]) -> Callable[[int], str]:
    return lambda number: faults.get(number, "pass")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("identity", ["producer", "key"])
def test_an_append_with_an_identity_is_there_once(daemon: ServedDirectory, fault: str, identity: str) -> None:
    """The first request of each append, then also its repetition, has the fault."""
    name = f"{identity}-{fault}"
    with (
        proxied(lambda: daemon.port, plan_of({0: fault, 2: fault, 3: fault})) as proxy,
        client_of(proxy.port) as client,
    ):
        topic = client.topic(name)
        for number in range(3):
            given = {"producer": ProducerBatch("p", 1, number)} if identity == "producer" else {"key": f"k{number}"}
            assert topic.append([b"%d" % number] * 2, **given) == range(2 * number + 1, 2 * number + 3)
        assert proxy.counts[fault] >= 2
    with client_of(daemon.port) as client:
        assert values_of(client, name) == [b"0", b"0", b"1", b"1", b"2", b"2"]


@pytest.mark.parametrize("fault", ["refuse", "busy"])
def test_a_plain_append_is_repeated_only_if_the_daemon_took_nothing(daemon: ServedDirectory, fault: str) -> None:
    """The daemon of `busy` refuses before the work. A connection that ends at once may have brought the request."""
    name = f"again-{fault}"
    with proxied(lambda: daemon.port, plan_of({0: fault, 1: fault})) as proxy, client_of(proxy.port) as client:
        if fault == "busy":
            assert client.topic(name).append([b"x"]) == range(1, 2)
            assert proxy.counts == {"busy": 2, "pass": 1}
        else:
            with pytest.raises(AppendUnknown):
                client.topic(name).append([b"x"])


@pytest.mark.parametrize(("fault", "is_in"), [("lose", True), ("cut", True), ("half", False)])
def test_a_plain_append_is_never_repeated_after_a_lost_answer(daemon: ServedDirectory, fault: str, is_in: bool) -> None:
    name = f"plain-{fault}"
    with proxied(lambda: daemon.port, plan_of({0: fault})) as proxy, client_of(proxy.port) as client:
        with pytest.raises(AppendUnknown):
            client.topic(name).append([b"x"])
        assert sum(proxy.counts.values()) == 1
    if is_in:
        with client_of(daemon.port) as client:
            assert values_of(client, name) == [b"x"]


@amounts(6, soak=400, part=3)
def test_batches_of_a_producer_are_there_once_and_in_order(daemon: ServedDirectory, amount: int) -> None:
    """Every fault with every probability, five batches at a time."""
    chance = random.Random(seed_of("client faults"))
    early = requests = faults = 0
    for run in range(amount):
        share, name = chance.uniform(0.1, 0.6), f"batches-{run}"

        def plan(_: int, share: float = share) -> str:
            return chance.choice(LAWFUL) if chance.random() < share else "pass"

        with proxied(lambda: daemon.port, plan) as proxy, client_of(proxy.port) as client:
            early += produced(client, name, 25)
            requests += sum(proxy.counts.values())
            faults += sum(proxy.counts.values()) - proxy.counts["pass"]
        with client_of(daemon.port) as client:
            assert values_of(client, name) == [b"%d" % number for number in range(75)]
    tell(f"{amount} runs of 25 batches, {requests} requests, {faults} faults, {early} batches came early")


def test_a_proxy_that_repeats_a_batch_by_itself_is_an_error_and_no_silent_loss(daemon: ServedDirectory) -> None:
    """The client cannot tell its repetition from a batch of another program (CLIENT-10)."""
    with proxied(lambda: daemon.port, plan_of({1: "twice"})) as proxy, client_of(proxy.port) as client:
        producer = client.topic("repeated").producer("p", epoch=1)
        for value in (b"one", b"two"):
            producer.send(value)
            with contextlib.suppress(BatchReused):
                producer.flush()
        with pytest.raises(BatchReused):
            producer.close()
        assert (producer.acked, proxy.counts["twice"]) == (1, 1)
    with client_of(daemon.port) as client:
        assert values_of(client, "repeated") == [b"one", b"two"]


@amounts(1, soak=60, part=2)
def test_a_daemon_that_is_killed_in_the_middle_has_each_record_once(tmp_path: Path, amount: int) -> None:
    chance, directory, sent = random.Random(seed_of("client kills")), tmp_path / "data", 0
    seglog.open(directory).close()
    batching = Batching(batch_records=5, linger_s=0.001)
    with (
        seglog.connect(f"unix:{directory}", retries=QUICK) as client,
        client.topic("t").producer("p", epoch=1, batching=batching) as producer,
    ):
        for _ in range(amount):
            with served(directory, "") as daemon:
                for _ in range(chance.randrange(20, 200)):
                    producer.send(b"%d" % sent)
                    sent += 1
                time.sleep(chance.random() / 50)
                daemon.process.send_signal(signal.SIGKILL)
        with served(directory, ""):
            producer.flush()
            assert values_of(client, "t") == [b"%d" % number for number in range(sent)]
    tell(f"{amount} kills, {sent} records")
