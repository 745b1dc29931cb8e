"""Test `seglog router` as a user types it, and what a recovery brings back: each record is copied once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from offload.operations.router import list_routers
from seglog.delivery.router import TOPIC
from tests.worlds.command import Run
from tests.worlds.services import directory_of, serving, until


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    run("append", "orders", stdin=b"one\ntwo\nthree\n")
    return run


def rows(run: Run, *arguments: str, directory: str = "data") -> list[dict[str, Any]]:
    done = run("--json", *arguments, directory=directory)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def served(directory: Path, *values: bytes, topic: str = "billing", remote: str = "") -> None:
    """Serve the directory until the topic has these values, and a moment longer."""

    async def serve() -> None:
        async with serving(directory, remote) as service:

            def has_all() -> bool:
                return len(found()) >= len(values)

            def found() -> list[bytes]:
                return [record.value for record in service.sync.topic(topic).read()]

            await until(has_all, "the copies")
            await asyncio.sleep(0.1)
            assert found() == [*values]

    asyncio.run(serve())


def test_a_router_is_made_listed_paused_and_deleted(started: Run, tmp_path: Path) -> None:
    done = started("router", "create", "r", "--from", "orders", "--to", "billing", "--at", "seq:1", "--grep", "t")
    assert (done.code, done.text) == (0, "router r from orders to billing begins behind seq 1\n")
    [shown] = rows(started, "router", "list")
    assert (shown["state"], shown["seq"], shown["lag_records"], shown["grep"]) == ("copying", 1, 2, "t")
    assert started("router", "list").text == "r: orders to billing, copying, 2 records behind\n"
    served(tmp_path / "data", b"two", b"three")
    assert started("router", "pause", "r").text == "router r from orders to billing is paused behind seq 3\n"
    assert started("router", "list").text == "r: orders to billing, paused, at the head\n"
    assert started("router", "resume", "r").text == "router r from orders to billing goes on behind seq 3\n"
    assert started("router", "delete", "r").text == "router r from orders to billing is deleted; it was behind seq 3\n"
    assert rows(started, "router", "list") == []
    assert started("router", "delete", "r").code == 3
    done = started("router", "create", "s", "--from", "orders", "--to", "copies")
    assert done.text == "router s from orders to copies begins before the first record\n"


def test_without_a_daemon_the_command_refuses_appends_to_a_destination(started: Run) -> None:
    started("router", "create", "r", "--from", "orders", "--to", "billing")
    done = started("append", "billing", stdin=b"own\n")
    assert (done.code, "takes the records of router r alone" in done.err) == (4, True)
    assert started("append", "orders", stdin=b"four\n").code == 0


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (("create", "a/b", "--from", "orders", "--to", "x"), 2),
        (("create", "t", "--from", "orders", "--to", "x", "--at", "seq:9"), 3),
        (("create", "t", "--from", "orders", "--to", "x", "--grep", "("), 2),
        (("create", "t", "--from", "nothing", "--to", "x"), 3),
        (("create", "t", "--from", "orders", "--to", "orders"), 4),
        (("create", "t", "--from", "orders@exp", "--to", "x"), 2),
        (("create", "t", "--from", "orders", "--to", "billing"), 4),
        (("create", "r", "--from", "orders", "--to", "x"), 4),
        (("create", "t", "--from", TOPIC, "--to", "x"), 4),
        (("pause", "nobody"), 3),
    ],
)
def test_a_wrong_argument_changes_nothing(started: Run, given: tuple[str, ...], code: int) -> None:
    started("router", "create", "r", "--from", "orders", "--to", "billing")
    before, topics = rows(started, "router", "list"), started("topic", "list").text
    assert started("router", *given).code == code
    assert (rows(started, "router", "list"), started("topic", "list").text) == (before, topics)


def test_a_replica_is_refused(started: Run, tmp_path: Path) -> None:
    offload_all(started, "orders")
    remote = (tmp_path / "remote").as_uri()
    assert started("recover", remote, "new", directory=None).code == 0
    done = started("router", "create", "r", "--from", "orders", "--to", "billing", directory="new")
    assert (done.code, "billing" in started("topic", "list", directory="new").text) == (4, False)


# ---------------------------------------------------------------- recoveries


def offload_all(run: Run, *topics: str) -> None:
    for topic in topics:
        run("seal", topic)
        done = run("offload", topic)
        assert done.code == 0, done.err


def recovered(run: Run, tmp_path: Path) -> None:
    assert run("recover", (tmp_path / "remote").as_uri(), "new", "--writable", directory=None).code == 0


@pytest.mark.parametrize("order", [("orders", "billing", TOPIC), (TOPIC, "orders", "billing")])
@pytest.mark.parametrize("filtered", [(), ("--grep", "^t")])
def test_after_a_recovery_each_record_is_there_once(
    started: Run, tmp_path: Path, order: tuple[str, ...], filtered: tuple[str, ...]
) -> None:
    started("router", "create", "r", "--from", "orders", "--to", "billing", *filtered)
    first = (b"two", b"three") if filtered else (b"one", b"two", b"three")
    served(tmp_path / "data", *first)
    offload_all(started, *order)
    started("append", "orders", stdin=b"ten\n")
    served(tmp_path / "data", *first, b"ten")  # is lost with the machine
    recovered(started, tmp_path)
    started("append", "orders", stdin=b"twelve\nthirteen\n", directory="new")
    served(tmp_path / "new", *first, b"twelve", b"thirteen", remote=(tmp_path / "remote").as_uri())


def test_after_a_recovery_the_copies_of_lost_records_stay_and_new_ones_of_the_same_seqs_come(
    started: Run, tmp_path: Path
) -> None:
    """The copy of seq 4 was offloaded, and its original was not."""
    started("router", "create", "r", "--from", "orders", "--to", "billing")
    offload_all(started, "orders")
    started("append", "orders", stdin=b"four\n")
    served(tmp_path / "data", b"one", b"two", b"three", b"four")
    offload_all(started, "billing", TOPIC)
    recovered(started, tmp_path)
    started("append", "orders", stdin=b"another four\n", directory="new")
    served(tmp_path / "new", b"one", b"two", b"three", b"four", b"another four", remote=(tmp_path / "remote").as_uri())


def test_after_a_recovery_copies_that_were_not_offloaded_are_made_again(started: Run, tmp_path: Path) -> None:
    started("router", "create", "r", "--from", "orders", "--to", "billing")
    served(tmp_path / "data", b"one", b"two", b"three")
    offload_all(started, "billing", TOPIC)
    started("append", "orders", stdin=b"four\n")
    served(tmp_path / "data", b"one", b"two", b"three", b"four")
    offload_all(started, "orders")
    recovered(started, tmp_path)
    served(tmp_path / "new", b"one", b"two", b"three", b"four", remote=(tmp_path / "remote").as_uri())


def test_after_a_recovery_a_truncation_that_may_hide_copies_stops_the_router(started: Run, tmp_path: Path) -> None:
    started("router", "create", "r", "--from", "orders", "--to", "billing")
    served(tmp_path / "data", b"one", b"two", b"three")
    offload_all(started, "orders", "billing", TOPIC)
    assert started("truncate", "billing", "--from", "2", "--yes").code == 0
    offload_all(started, "billing")
    recovered(started, tmp_path)
    started("append", "orders", stdin=b"four\n", directory="new")

    async def stop() -> None:
        async with serving(tmp_path / "new", (tmp_path / "remote").as_uri()) as service:

            def reason() -> str:
                [shown] = list_routers(directory_of(service))
                return f"{shown.state}: {shown.reason}"

            await until(lambda: "truncated before the recovery" in reason(), "the router stops")
            assert reason().startswith("stopped: ")

    asyncio.run(stop())
    served(tmp_path / "new", b"one", remote=(tmp_path / "remote").as_uri())


def test_after_a_recovery_a_truncated_source_goes_on_before_the_cut(started: Run, tmp_path: Path) -> None:
    started("router", "create", "r", "--from", "orders", "--to", "billing")
    served(tmp_path / "data", b"one", b"two", b"three")
    offload_all(started, "orders", "billing", TOPIC)
    assert started("truncate", "orders", "--from", "2", "--yes").code == 0
    started("append", "orders", stdin=b"another two\n")
    served(tmp_path / "data", b"one", b"two", b"three", b"another two")
    offload_all(started, "orders", "billing", TOPIC)
    recovered(started, tmp_path)
    started("append", "orders", stdin=b"another three\n", directory="new")
    copies = (b"one", b"two", b"three", b"another two", b"another three")
    served(tmp_path / "new", *copies, remote=(tmp_path / "remote").as_uri())
