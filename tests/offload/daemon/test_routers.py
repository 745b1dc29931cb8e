"""Test routers in a daemon: what is copied, once, over truncations, restarts, pauses, refusals and foreign appends."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import offload
import seglog
from catalog import MemoryStore, ObjectStore
from offload.daemon import routers
from offload.daemon.feeds import Page
from offload.daemon.http import make_app
from offload.daemon.laminarmq import make_laminarmq_app
from offload.daemon.service import Service
from offload.operations import router as operations
from offload.operations.removal import evict, truncate
from offload.operations.router import RouterListed, loaded_states
from offload.operations.topic import set_config
from offload.recovery import Recovered, recover
from offload.token_rights import EVERYTHING, RIGHTS_KEY, Grant, Rights, Role
from seglog import TopicConfig
from seglog.base.errors import Conflict, Missing, Misuse
from seglog.delivery.router import TOPIC
from tests.faults.store import WrappedStore
from tests.seams.delivery import look_at_routers
from tests.worlds.asgi import asked
from tests.worlds.clock import HandClock
from tests.worlds.services import directory_of, serving, until
from tests.worlds.sockets import SocketWorld

Run = Callable[[Service], Awaitable[None]]


def in_service(directory: Path, run: Run, store: ObjectStore | str = "", **options: Any) -> None:
    async def live() -> None:
        async with serving(directory, store, **options) as service:
            await run(service)

    asyncio.run(live())


def killed(directory: Path, run: Run, **options: Any) -> Path:
    """Return what a service leaves that is killed after `run`, so that it makes no last pair."""

    async def live(service: Service) -> None:
        await run(service)
        shutil.copytree(directory / "lived", directory / "left", ignore=shutil.ignore_patterns("*.sock"))

    in_service(directory / "lived", live, **options)
    return directory / "left"


def values(service: Service, topic: str) -> list[bytes]:
    return [record.value for record in service.sync.topic(topic).read()]


def shown(service: Service, name: str = "r") -> RouterListed:
    return next(each for each in operations.list_routers(directory_of(service)) if each.router == name)


async def made(service: Service, name: str = "r", source: str = "a", destination: str = "b", **options: Any) -> None:
    await asyncio.to_thread(operations.create, directory_of(service), name, source, destination, **options)


async def append(service: Service, topic: str, *texts: bytes, **labels: Any) -> None:
    await service.log.topic(topic).append([*texts], **labels)


async def copied(service: Service, topic: str, *texts: bytes) -> None:
    def is_so() -> bool:
        return service.sync.has_topic(topic) and values(service, topic) == [*texts]

    try:
        await until(is_so, f"copies in {topic}")
    except AssertionError:
        routers = [*operations.list_routers(directory_of(service))]
        raise AssertionError(f"{topic} has {values(service, topic)}, not {texts}; {routers}") from None


async def command(service: Service, do: Callable[..., Any], *given: Any, **options: Any) -> Any:
    return await asyncio.to_thread(do, directory_of(service), *given, **options)


async def settled(service: Service, seq: int, name: str = "r") -> None:
    await until(lambda: shown(service, name).seq == seq, f"router {name} at seq {seq}")


async def nothing() -> None:
    """Do nothing."""


async def sent_to(
    app: Any, path: str, body: bytes, rights: Rights, before: Callable[[], Awaitable[None]] = nothing
) -> tuple[int, bytes]:
    """Send a request whose body comes after `before`, from a client that stays. Return the status and the answer."""
    sent, bodies = list[Any](), iter([body])

    async def receive() -> dict[str, Any]:
        for piece in bodies:
            await before()
            return {"type": "http.request", "body": piece, "more_body": False}
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/octet-stream")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "root_path": "", "headers": headers}
    await app({**scope, RIGHTS_KEY: rights}, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_each_record_is_copied_once_in_order_with_its_labels(tmp_path: Path) -> None:
    async def run(service: Service) -> None:
        await append(service, "a", b"1", b"2", tag="eu", node="n1")
        await append(service, "a", b"3", unterminated=True)
        await made(service)
        await append(service, "a", b"4", tag="us")
        await copied(service, "b", b"1", b"2", b"3", b"4")
        one, two, three, four = service.sync.topic("b").read()
        assert (one.tag, one.node, two.tag, two.node) == ("eu", "n1", "eu", "n1")
        assert (three.tag, three.node, three.unterminated) == (None, None, True)
        assert (four.tag, four.unterminated) == ("us", False)
        await settled(service, 4)
        assert (shown(service).state, shown(service).lag_records, shown(service).passed_over) == ("copying", 0, 0)

    in_service(tmp_path, run)


def test_a_router_copies_what_matches_and_drops_what_it_is_told_to(tmp_path: Path) -> None:
    async def run(service: Service) -> None:
        await made_topic(service, "a")
        await made(service, tag="eu*", grep="o[nx]e", drop_tag=True, drop_node=True)
        for tag in ("eu1", "us", None, "eu2"):
            await append(service, "a", b"one", b"two", tag=tag, node="n")
        await copied(service, "b", b"one", b"one")
        assert [(record.tag, record.node) for record in service.sync.topic("b").read()] == [(None, None)] * 2
        await settled(service, 8)

    in_service(tmp_path, run)


async def made_topic(service: Service, name: str, **config: Any) -> None:
    await asyncio.to_thread(service.sync.create_topic, name, TopicConfig(**config))


def test_neighbours_of_many_labels_keep_their_order(tmp_path: Path) -> None:
    async def run(service: Service) -> None:
        await made_topic(service, "a")
        await made(service)
        texts = [str(number).encode() for number in range(200)]
        for number, text in enumerate(texts):
            await append(service, "a", text, tag=f"t{number % 3}", durability="memory")
        await copied(service, "b", *texts)

    in_service(tmp_path, run)


def test_a_busy_source_is_copied_in_large_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WORKER-6: the first record at once, and then all that came within the pause. Ten routers would stop a client."""
    monkeypatch.setattr(routers, "COLLECT_S", 2.0)

    async def run(service: Service) -> None:
        await made_topic(service, "a")
        await made(service)
        await append(service, "a", b"first")
        await copied(service, "b", b"first")
        for _ in range(50):
            await append(service, "a", b"more", durability="memory")
        await copied(service, "b", b"first", *[b"more"] * 50)
        producer = service.sync.topic("b").inner.known_producer(loaded_states(service.sync, None).find("r").producer)
        assert producer is not None
        assert [batch.records for batch in producer.batches] == [1, 50]

    in_service(tmp_path, run)


def test_a_chain_of_routers_copies_from_end_to_end(tmp_path: Path) -> None:
    async def run(service: Service) -> None:
        await append(service, "a", b"1")
        for name, (source, destination) in {"x": "ab", "y": "bc", "z": "ad"}.items():
            await made(service, name, source, destination)
        await append(service, "a", b"2")
        await copied(service, "c", b"1", b"2")
        await copied(service, "d", b"1", b"2")

    in_service(tmp_path, run)


def test_a_router_begins_where_it_is_told_to(tmp_path: Path) -> None:
    async def run(service: Service) -> None:
        await append(service, "a", b"1", b"2", b"3")
        await made(service, "x", "a", "b", at="head")
        await made(service, "y", "a", "c", at="seq:1")
        await append(service, "a", b"4")
        await copied(service, "b", b"4")
        await copied(service, "c", b"2", b"3", b"4")

    in_service(tmp_path, run)


# ---------------------------------------------------------------- truncations


def test_after_a_truncation_of_the_source_the_new_records_of_the_same_seqs_are_copied(tmp_path: Path) -> None:
    async def run(service: Service) -> None:
        await append(service, "a", b"1", b"2", b"3")
        await made(service)
        await copied(service, "b", b"1", b"2", b"3")
        await command(service, truncate, "a", 2, yes=True)
        await append(service, "a", b"two", b"three")
        await copied(service, "b", b"1", b"2", b"3", b"two", b"three")
        await command(service, truncate, "a", 1, yes=True)
        await append(service, "a", b"one")
        await copied(service, "b", b"1", b"2", b"3", b"two", b"three", b"one")
        with loaded_states(service.sync, None).lock_of("r"):  # a program in this process truncates, and appends at once
            service.sync.topic("a").truncate(1)
            service.sync.topic("a").append([b"uno", b"due"])
        await copied(service, "b", b"1", b"2", b"3", b"two", b"three", b"one", b"uno", b"due")

    in_service(tmp_path, run)


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_truncation_without_a_daemon_is_known_if_the_command_made_it(tmp_path: Path, *, is_seen: bool) -> None:
    async def begin(service: Service) -> None:
        await append(service, "a", b"1", b"2", b"3")
        await made(service)
        await copied(service, "b", b"1", b"2", b"3")

    async def check(service: Service) -> None:
        if is_seen:
            await copied(service, "b", b"1", b"2", b"3", b"two")
        else:
            await until(lambda: shown(service).state == "stopped", "the router stops")
            assert "was truncated while nothing looked" in str(shown(service).reason)
            assert values(service, "b") == [b"1", b"2", b"3"]

    in_service(tmp_path, begin)
    with seglog.open(tmp_path) as log:
        if is_seen:
            truncate(operations.Directory(lambda: (log, None), None), "a", 2, yes=True)  # type: ignore[arg-type]
        else:
            log.topic("a").truncate(2)
        log.topic("a").append([b"two"])
    in_service(tmp_path, check)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_truncated_destination_is_not_filled_again(tmp_path: Path, *, is_restarted: bool) -> None:
    async def begin(service: Service) -> None:
        await append(service, "a", b"1", b"2", b"3")
        await made(service)
        await copied(service, "b", b"1", b"2", b"3")
        await command(service, truncate, "b", 2, yes=True)
        if not is_restarted:
            await check(service)

    async def check(service: Service) -> None:
        await append(service, "a", b"4")
        await copied(service, "b", b"1", b"4")
        await settled(service, 4)
        assert values(service, "b") == [b"1", b"4"]

    in_service(tmp_path, begin)
    if is_restarted:
        in_service(tmp_path, check)


# ---------------------------------------------------------------- losses


def test_what_was_evicted_before_its_turn_is_passed_over_and_counted(tmp_path: Path) -> None:
    async def run(service: Service) -> None:
        await append(service, "a", b"1", b"2", b"3")
        await asyncio.to_thread(service.sync.topic("a").seal)
        await made(service, at="seq:1")
        await copied(service, "b", b"2", b"3")
        await command(service, operations.pause, "r")
        await append(service, "a", b"4", b"5", b"6")
        await asyncio.to_thread(service.sync.topic("a").seal)
        await append(service, "a", b"7")
        await command(service, evict, "a", before=7, yes=True)
        await command(service, operations.resume, "r")
        await copied(service, "b", b"2", b"3", b"7")
        await until(lambda: shown(service).passed_over == 3, "three are passed over")

    in_service(tmp_path, run)

    async def again(service: Service) -> None:
        assert shown(service).passed_over == 3

    in_service(tmp_path, again)


def test_ephemeral_records_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "PAIR_S", 0.0)

    async def run(service: Service) -> None:
        await append(service, "a", b"1")
        await append(service, "a", b"gone", durability="ephemeral")
        await made(service)
        await append(service, "a", b"2")
        await append(service, "a", b"gone, too", durability="ephemeral")
        await copied(service, "b", b"1", b"2")
        await settled(service, 4)
        await until(lambda: loaded_states(service.sync, None).find("r").newest.seq >= 3, "a pair")

    in_service(tmp_path, run)

    async def again(service: Service) -> None:
        await append(service, "a", b"3")
        await copied(service, "b", b"1", b"2", b"3")

    in_service(tmp_path, again)


@pytest.mark.parametrize("topic", ["a", "b"])
def test_a_router_ends_with_its_topics_and_says_so(tmp_path: Path, topic: str) -> None:
    async def run(service: Service) -> None:
        await append(service, "a", b"1")
        await made(service)
        await copied(service, "b", b"1")
        await asyncio.to_thread(service.sync.delete_topic, topic)
        assert shown(service).reason == f"topic {topic} was deleted"
        await append(service, topic, b"new")
        await until(lambda: "is another one than it was" in str(shown(service).reason), "the reason")
        await service.routers.check_appends("b")
        assert values(service, topic) == [b"new"]
        await command(service, operations.delete, "r")
        await made(service, "s")
        assert shown(service, "s").state == "copying"

    in_service(tmp_path, run)


def test_a_router_of_the_same_name_begins_anew(tmp_path: Path) -> None:
    async def run(service: Service) -> None:
        await append(service, "a", b"1", b"2")
        await made(service)
        await copied(service, "b", b"1", b"2")
        gone = await command(service, operations.delete, "r")
        assert gone.seq == 2
        await append(service, "b", b"own")
        await append(service, "a", b"3")
        await made(service, at=f"seq:{gone.seq}")
        await copied(service, "b", b"1", b"2", b"own", b"3")
        await command(service, operations.delete, "r")
        await made(service)
        await copied(service, "b", b"1", b"2", b"own", b"3", b"1", b"2", b"3")

    in_service(tmp_path, run)


# ---------------------------------------------------------------- pauses, restarts, places


def test_a_pause_lasts_over_a_restart(tmp_path: Path) -> None:
    async def begin(service: Service) -> None:
        await append(service, "a", b"1")
        await made(service)
        await copied(service, "b", b"1")
        await command(service, operations.pause, "r")
        await append(service, "a", b"2")

    async def check(service: Service) -> None:
        await append(service, "a", b"3")
        await asyncio.sleep(0.1)
        assert values(service, "b") == [b"1"]
        assert (shown(service).state, shown(service).lag_records) == ("paused", 2)
        await command(service, operations.resume, "r")
        await copied(service, "b", b"1", b"2", b"3")

    in_service(tmp_path, begin)
    in_service(tmp_path, check)


def test_the_place_moves_durably_without_a_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "PAIR_RECORDS", 5)

    async def run(service: Service) -> None:
        await append(service, "a", *[b"x"] * 20, tag="no")
        await made(service, tag="yes")
        await settled(service, 20)
        await until(lambda: loaded_states(service.sync, None).find("r").newest.seq == 20, "a pair")
        assert service.sync.topic("b").head_seq == 0

    in_service(tmp_path, run)
    with seglog.open(tmp_path) as log:
        states = loaded_states(log, None)
        assert states.place_of(states.find("r")) == 20


def test_a_truncation_during_a_pause_moves_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "PAIR_S", 0.0)

    async def run(service: Service) -> None:
        await append(service, "a", b"1", b"2", b"3")
        await made(service)
        await copied(service, "b", b"1", b"2", b"3")
        await command(service, operations.pause, "r")
        await command(service, truncate, "a", 2, yes=True)
        await append(service, "a", b"two", b"three")
        await asyncio.sleep(0.1)  # looks of the background
        assert shown(service).seq == 1
        await command(service, operations.resume, "r")
        await copied(service, "b", b"1", b"2", b"3", b"two", b"three")

    in_service(tmp_path, run)


def test_an_idle_router_makes_a_pair_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "PAIR_S", 0.0)

    async def run(service: Service) -> None:
        await append(service, "a", b"x")
        await made(service)
        await copied(service, "b", b"x")
        await until(lambda: loaded_states(service.sync, None).find("r").newest.seq == 1, "a pair")

    in_service(tmp_path, run)


@pytest.mark.parametrize("filtered", [{}, {"tag": "yes"}])
def test_a_destination_that_forgot_its_producer_counts_the_copies(tmp_path: Path, filtered: dict[str, str]) -> None:
    """PRODUCER-3: it forgets it when it opens, a second after the last copy."""
    clock = HandClock()
    options = {"clock": clock, "LOG_PRODUCER_KEEP_S": "1"}

    async def begin(service: Service) -> None:
        for number in range(6):
            await append(service, "a", b"%d" % number, tag="yes" if number % 2 else "no")
        await made(service, **filtered)
        await copied(service, "b", *(b"%d" % number for number in range(6) if number % 2 or not filtered))

    async def check(service: Service) -> None:
        states = loaded_states(service.sync, None)
        assert service.sync.topic("b").inner.known_producer(states.find("r").producer) is None
        assert states.find("r").newest.seq == 0
        await append(service, "a", b"6", tag="yes")
        await copied(service, "b", *(b"%d" % number for number in range(7) if number in {1, 3, 5, 6} or not filtered))

    left = killed(tmp_path, begin, **options)
    clock.ms += 5_000
    in_service(left, check, **options)


def test_a_place_that_would_be_a_guess_stops_the_router(tmp_path: Path) -> None:
    clock = HandClock()
    options = {"clock": clock, "LOG_PRODUCER_KEEP_S": "1"}

    async def begin(service: Service) -> None:
        await append(service, "a", b"1", b"2", b"3")
        await made(service)
        await copied(service, "b", b"1", b"2", b"3")
        await asyncio.to_thread(service.sync.topic("a").delete, seqs=[2])

    async def check(service: Service) -> None:
        await append(service, "a", b"4")
        await until(lambda: "are gone since they were copied" in str(shown(service).reason), "the reason")
        assert (shown(service).state, values(service, "b")) == ("stopped", [b"1", b"2", b"3"])

    left = killed(tmp_path, begin, **options)
    clock.ms += 5_000
    in_service(left, check, **options)


def test_a_clean_stop_keeps_the_place_also_if_copied_records_are_deleted_later(tmp_path: Path) -> None:
    clock = HandClock()
    options = {"clock": clock, "LOG_PRODUCER_KEEP_S": "1"}

    async def begin(service: Service) -> None:
        await append(service, "a", b"1", b"2", b"3")
        await made(service)
        await copied(service, "b", b"1", b"2", b"3")
        await asyncio.to_thread(service.sync.topic("a").delete, seqs=[2])

    async def check(service: Service) -> None:
        await append(service, "a", b"4")
        await copied(service, "b", b"1", b"2", b"3", b"4")

    in_service(tmp_path, begin, **options)
    clock.ms += 5_000
    in_service(tmp_path, check, **options)


def test_an_append_while_the_daemon_was_off_counts_for_no_copy(tmp_path: Path) -> None:
    clock = HandClock()
    options = {"clock": clock, "LOG_PRODUCER_KEEP_S": "1"}

    async def begin(service: Service) -> None:
        await append(service, "a", b"1")
        await made(service)
        await copied(service, "b", b"1")

    async def go_on(service: Service) -> None:
        await append(service, "a", b"2")
        await copied(service, "b", b"1", b"own", b"2")

    async def check(service: Service) -> None:
        await append(service, "a", b"3", b"4")
        await copied(service, "b", b"1", b"own", b"2", b"3", b"4")

    in_service(tmp_path, begin, **options)
    with seglog.open(tmp_path, clock=clock) as log:
        log.topic("b").append([b"own"])
    (tmp_path / "next").mkdir()
    shutil.copytree(tmp_path, tmp_path / "next" / "lived", ignore=shutil.ignore_patterns("*.sock", "next"))
    left = killed(tmp_path / "next", go_on, **options)
    clock.ms += 5_000
    in_service(left, check, **options)


def test_a_page_of_a_slower_follower_is_no_news_of_a_router(tmp_path: Path) -> None:
    """The feed hands a slow follower the records that the router has read for itself, and one more is there by then."""

    async def run(service: Service) -> None:
        wait, late = service.feeds.wait, [Page(1, 1, 2, (), ())]

        async def waited(topic: Any, epoch: int, seq: int) -> Page | None:
            if seq == 3 and late:
                await append(service, "a", b"3")
                return late.pop()
            return await wait(topic, epoch, seq)

        await append(service, "a", b"1", b"2")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(service.feeds, "wait", waited)
            patch.setattr(routers, "COLLECT_S", 0.0)
            await made(service)
            await copied(service, "b", b"1", b"2", b"3")
        assert not late

    in_service(tmp_path, run)


@pytest.mark.parametrize("ended", ["aa", "z"])
def test_a_router_that_ended_opens_no_door_to_the_destination_of_another_one(tmp_path: Path, ended: str) -> None:
    async def run(service: Service) -> None:
        await append(service, "old", b"1")
        await made(service, ended, "old")
        await copied(service, "b", b"1")
        await asyncio.to_thread(service.sync.delete_topic, "old")
        await append(service, "a", b"2")
        await made(service)
        await command(service, operations.pause, ended)
        with pytest.raises(Conflict, match="router r alone"):
            await service.routers.check_appends("b")

    async def check(service: Service) -> None:
        with pytest.raises(Conflict, match="router r alone"):
            await service.routers.check_appends("b")

    in_service(tmp_path, run)
    in_service(tmp_path, check)


# ---------------------------------------------------------------- recoveries


async def offloaded(service: Service, *topics: str) -> None:
    for topic in topics:
        await asyncio.to_thread(service.sync.topic(topic).seal)
        assert service.archive is not None
        await asyncio.to_thread(service.archive.offload, topic)


def recovered(directory: Path, remote: str) -> Path:
    assert {type(each) for each in recover(directory, remote, writable=True)} == {Recovered}
    return directory


@pytest.mark.long
def test_in_a_chain_a_copy_that_came_back_shorter_stops_the_router_behind_it(tmp_path: Path) -> None:
    """Else what the first router copies again into b would be in c twice."""
    remote, options = (tmp_path / "remote").as_uri(), {"OFFLOAD_OFFLOAD_AFTER_S": "never"}

    async def begin(service: Service) -> None:
        await append(service, "a", b"1", b"2")
        await made(service, "x", "a", "b")
        await made(service, "y", "b", "c")
        await copied(service, "c", b"1", b"2")
        await offloaded(service, "b", TOPIC)
        await append(service, "a", b"3", b"4")
        await copied(service, "c", b"1", b"2", b"3", b"4")
        await offloaded(service, "a", "c", TOPIC)

    async def check(service: Service) -> None:
        await copied(service, "b", b"1", b"2", b"3", b"4")
        await until(lambda: "a copy itself, came back with fewer" in str(shown(service, "y").reason), "the reason")
        assert values(service, "c") == [b"1", b"2", b"3", b"4"]

    in_service(tmp_path / "data", begin, remote, **options)
    in_service(recovered(tmp_path / "new", remote), check, remote, **options)


@pytest.mark.long
def test_two_recoveries_without_an_offload_of_the_routers_stop_a_router_that_must_count(tmp_path: Path) -> None:
    """Copies of records that the first machine lost would hide as many of the second one."""
    remote, options = (tmp_path / "remote").as_uri(), {"OFFLOAD_OFFLOAD_AFTER_S": "never"}

    async def one(service: Service) -> None:
        await append(service, "a", b"1", b"2")
        await made(service)
        await copied(service, "b", b"1", b"2")
        await offloaded(service, "a", TOPIC)
        await append(service, "a", b"3")
        await copied(service, "b", b"1", b"2", b"3")
        await offloaded(service, "b")

    async def two(service: Service) -> None:
        await append(service, "a", b"three", b"four")
        await copied(service, "b", b"1", b"2", b"3", b"three", b"four")
        await command(service, operations.pause, "r")
        await append(service, "a", b"five")
        await offloaded(service, "a", "b")

    async def three(service: Service) -> None:
        await until(lambda: "was recovered twice" in str(shown(service).reason), "the reason")
        assert values(service, "b") == [b"1", b"2", b"3", b"three", b"four"]

    in_service(tmp_path / "data", one, remote, **options)
    in_service(recovered(tmp_path / "second", remote), two, remote, **options)
    in_service(recovered(tmp_path / "third", remote), three, remote, **options)


@pytest.mark.long
def test_a_truncation_of_what_no_remote_had_stops_no_router_that_is_recovered_later(tmp_path: Path) -> None:
    remote, options = (tmp_path / "remote").as_uri(), {"OFFLOAD_OFFLOAD_AFTER_S": "never"}

    async def begin(service: Service) -> None:
        await append(service, "a", b"1", b"2", b"3")
        await made(service)
        await copied(service, "b", b"1", b"2", b"3")
        await command(service, truncate, "a", 3, yes=True)
        await append(service, "a", b"three", b"4")
        await copied(service, "b", b"1", b"2", b"3", b"three", b"4")
        await command(service, operations.pause, "r")
        await offloaded(service, "a", "b")

    async def stopped(service: Service) -> None:
        await offloaded(service, TOPIC)
        await command(service, operations.resume, "r")

    async def check(service: Service) -> None:
        await append(service, "a", b"5")
        if shown(service).state == "paused":
            await command(service, operations.resume, "r")
        await copied(service, "b", b"1", b"2", b"3", b"three", b"4", b"5")

    in_service(tmp_path / "data", begin, remote, **options)
    in_service(tmp_path / "data", stopped, remote, **options)
    in_service(recovered(tmp_path / "new", remote), check, remote, **options)


# ---------------------------------------------------------------- refusals and failures


def test_a_foreign_append_to_the_destination_costs_no_copy(tmp_path: Path) -> None:
    """A program that has the log open itself may append: no copy is lost, and none is made twice."""

    async def run(service: Service) -> None:
        await append(service, "a", b"1")
        await made(service)
        await copied(service, "b", b"1")
        for number in range(10):
            await asyncio.gather(append(service, "b", b"own"), append(service, "a", b"%d" % number))
        await until(lambda: shown(service).seq == 11, "all are copied")
        assert [text for text in values(service, "b") if text != b"own"] == [b"1", *(b"%d" % n for n in range(10))]

    in_service(tmp_path, run)


def test_a_foreign_append_and_a_forgotten_producer_cost_no_copy(tmp_path: Path) -> None:
    clock = HandClock()
    options = {"clock": clock, "LOG_PRODUCER_KEEP_S": "1"}

    async def begin(service: Service) -> None:
        await append(service, "a", b"1")
        await made(service)
        await copied(service, "b", b"1")
        await append(service, "b", b"own")
        await append(service, "a", b"2")
        await copied(service, "b", b"1", b"own", b"2")

    async def check(service: Service) -> None:
        await append(service, "a", b"3")
        await copied(service, "b", b"1", b"own", b"2", b"3")

    in_service(tmp_path, begin, **options)
    clock.ms += 5_000
    in_service(tmp_path, check, **options)


def test_an_append_that_fails_fails_those_behind_it(tmp_path: Path) -> None:
    """The second record does not fit, and the third would: it waits for the second."""

    async def run(service: Service) -> None:
        await made_topic(service, "a")
        await made_topic(service, "b", cap_bytes=4096, discard="reject")
        await append(service, "a", b"1", tag="t1")
        await append(service, "a", b"2" * 8000, tag="t2")
        await append(service, "a", b"3", tag="t3")
        await made(service)
        await until(lambda: "TopicFull" in str(shown(service).reason) or "full" in str(shown(service).reason), "full")
        assert (values(service, "b"), shown(service).seq) == ([b"1"], 1)
        await asyncio.to_thread(service.sync.configure, "b", TopicConfig())
        await copied(service, "b", b"1", b"2" * 8000, b"3")

    in_service(tmp_path, run)


def test_a_destination_takes_the_records_of_its_router_alone(tmp_path: Path) -> None:
    binary = (b"content-type", b"application/octet-stream")

    async def run(service: Service) -> None:
        await append(service, "a", b"1")
        await made(service)
        await copied(service, "b", b"1")
        app = make_app(service)
        for method in ("POST", "PUT"):
            status, problem, _ = await asked(app, "/topics/b/records", binary, method=method, body=b"own")
            assert (status, "takes the records of router r alone" in problem["detail"]) == (409, True)
        laminarmq = make_laminarmq_app(service, "b")
        with pytest.raises(ValueError, match="Expecting value"):  # it answers with a text
            await asked(laminarmq, "/records", binary, method="POST", body=b"own")
        assert values(service, "b") == [b"1"]
        await command(service, operations.delete, "r")
        assert (await asked(app, "/topics/b/records", binary, method="POST", body=b"own"))[0] == 201

    in_service(tmp_path, run)


def test_a_socket_appends_to_no_destination(tmp_path: Path) -> None:
    async def run() -> None:
        world = SocketWorld(tmp_path)
        async with world.served(), world.talking() as talk:
            await append(world.service, "a", b"1")
            await made(world.service)
            await talk.say("append", topic="b", records=[{"value": "own"}])
            answer = await talk.hear()
            assert (answer["is"], "takes the records of router r alone" in str(answer)) == ("error", True)
            await copied(world.service, "b", b"1")

    asyncio.run(run())


@pytest.mark.parametrize("path", ["router/pause", "router/resume", "router/delete"])
def test_a_command_on_a_router_needs_its_role_on_both_topics(tmp_path: Path, path: str) -> None:
    async def run(service: Service) -> None:
        await append(service, "a", b"1")
        await made(service)
        app, body = make_app(service), b'{"name": "r"}'
        for topics, role, status in (("a", "admin", 403), ("b", "admin", 403), ("a,b", "append", 403)):
            rights = Rights("t", tuple(Grant(Role[role.upper()], (topic,)) for topic in topics.split(",")))
            found, problem, _ = await asked(app, f"/rpc/{path}", body=body, **{RIGHTS_KEY: rights})
            assert (found, problem["title"]) == (status, "NotAllowed")
        rights = Rights("t", (Grant(Role.ADMIN, ("a", "b")),))
        assert (await sent_to(app, f"/rpc/{path}", body, rights))[0] == 200

    in_service(tmp_path, run)


def test_an_append_under_way_when_the_router_is_made_is_refused(tmp_path: Path) -> None:
    async def run(service: Service) -> None:
        await append(service, "a", b"1")
        app = make_app(service)
        status, answer = await sent_to(app, "/topics/b/records", b"own", EVERYTHING, lambda: made(service))
        assert (status, b"takes the records of router r alone" in answer) == (409, True)
        await copied(service, "b", b"1")

    in_service(tmp_path, run)


def test_a_router_that_cannot_be_is_refused(tmp_path: Path) -> None:
    async def run(service: Service) -> None:
        await append(service, "a", b"1")
        await made(service)
        await made(service, "s", "b", "c")
        for source, destination, text in (
            ("a", "b", "router_dest_fan_in: topic b takes the records of router r alone"),
            ("c", "b", "router_dest_fan_in"),
            ("c", "a", "a -> b -> c -> a"),
            ("c", "c", "router_dest_fan_in"),
            ("a", "a", "a -> a"),
            (TOPIC, "x", "the daemon's own records"),
            ("a", "_seglog.x", "the daemon's own records"),
            ("a", "_streams", "the daemon's own records"),
            ("a", "e", "is ephemeral"),
        ):
            if destination == "e":
                await made_topic(service, "e", durability="ephemeral", keep_history=False)
            with pytest.raises(Conflict, match=text):
                await made(service, "t", source, destination)
        with pytest.raises(Conflict, match="there is a router r already"):
            await made(service, "r", "a", "x")
        with pytest.raises(Misuse, match="is no regular expression"):
            await made(service, "t", "a", "x", grep="(")
        with pytest.raises(Missing):
            await made(service, "t", "nothing", "x")
        for do in (operations.pause, operations.resume, operations.delete):
            with pytest.raises(Missing, match="there is no router t"):
                await command(service, do, "t")

    in_service(tmp_path, run)


def test_the_topic_of_a_stream_is_refused(tmp_path: Path) -> None:
    async def run(service: Service) -> None:
        app = make_app(service)
        assert (await asked(app, "/streams/s", (b"content-type", b"text/plain"), method="PUT"))[0] == 201
        await append(service, "a", b"1")
        for source, destination in (("s", "b"), ("a", "s")):
            with pytest.raises(Conflict, match="topic s is a stream"):
                await made(service, "r", source, destination)

    in_service(tmp_path, run)


@pytest.mark.parametrize("ends", [("a", "s"), ("s", "b")])
def test_no_stream_takes_the_topic_that_an_earlier_one_left_to_a_router(tmp_path: Path, ends: tuple[str, str]) -> None:
    async def run(service: Service) -> None:
        app, text = make_app(service), (b"content-type", b"text/plain")
        await append(service, "a", b"1")
        await asked(app, "/streams/s", text, method="PUT")
        await asked(app, "/streams/s", text, method="POST", body=b"own")
        await offloaded(service, "s")  # so the topic stays
        await asked(app, "/streams/s", method="DELETE")
        await made(service, "r", *ends)
        status, problem, *_ = await asked(app, "/streams/s", text, method="PUT")
        assert (status, "router r copies" in str(problem)) == (409, True)
        await command(service, operations.delete, "r")
        assert (await asked(app, "/streams/s", text, method="PUT"))[0] == 201

    in_service(tmp_path, run, MemoryStore(), OFFLOAD_OFFLOAD_AFTER_S="never")


def test_a_destination_stays_one_that_keeps_its_records(tmp_path: Path) -> None:
    async def run(service: Service) -> None:
        await append(service, "a", b"1")
        await made(service)
        await copied(service, "b", b"1")
        with pytest.raises(Conflict, match="router r copies to topic b, and a copy that may vanish is none"):
            await command(service, set_config, "b", durability="ephemeral")
        await command(service, set_config, "b", durability="memory")
        await command(service, operations.delete, "r")
        await command(service, set_config, "b", durability="ephemeral")
        assert service.sync.topic("b").config.durability == "ephemeral"

    in_service(tmp_path, run)


def test_the_answer_of_a_delete_names_no_place_that_nobody_knows(tmp_path: Path) -> None:
    clock = HandClock()
    options = {"clock": clock, "LOG_PRODUCER_KEEP_S": "1"}

    async def begin(service: Service) -> None:
        await append(service, "a", *(b"%d" % number for number in range(9)))
        await made(service)
        await until(lambda: service.sync.topic("b").head_seq == 9, "the copies")
        await asyncio.to_thread(service.sync.topic("a").delete, seqs=[3])

    async def check(service: Service) -> None:
        await append(service, "a", b"new")
        gone = await command(service, operations.delete, "r")
        assert gone.seq is None

    left = killed(tmp_path, begin, **options)
    clock.ms += 5_000
    in_service(left, check, **options)


def test_above_the_pressure_of_a_pause_a_router_waits_one_band_lower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(service: Service) -> None:
        taken: list[tuple[int, int]] = []
        take = service.feeds.ready.take

        async def noted(key: Any, priority: int = 0, boost: int = 0, *rest: Any) -> None:
            if key == ("router", "r"):
                taken.append((priority, boost))
            await take(key, priority, boost, *rest)

        monkeypatch.setattr(service.feeds.ready, "take", noted)
        await made_topic(service, "a", priority=300)
        await made(service)
        await append(service, "a", b"1")
        await copied(service, "b", b"1")
        monkeypatch.setattr(type(service.feeds.ready), "pressure", 0.9)
        await append(service, "a", b"2")
        await copied(service, "b", b"1", b"2")
        assert taken == [(300, 0), (300, -250)]

    in_service(tmp_path, run)


def test_a_record_that_is_no_router_stops_no_other_one(tmp_path: Path) -> None:
    async def begin(service: Service) -> None:
        await append(service, "a", b"1")
        await made(service)
        await copied(service, "b", b"1")
        service.sync.topic(TOPIC).append([json.dumps({"version": 2}).encode()], tag="later")

    async def check(service: Service) -> None:
        await append(service, "a", b"2")
        await copied(service, "b", b"1", b"2")
        with pytest.raises(Conflict, match="already"):
            await made(service, "later", "a", "x")

    in_service(tmp_path, begin)
    in_service(tmp_path, check)


def test_a_router_of_a_later_version_keeps_its_destination(tmp_path: Path) -> None:
    async def begin(service: Service) -> None:
        await append(service, "a", b"1")
        await made(service)
        await copied(service, "b", b"1")
        members = json.loads(list(service.sync.topic(TOPIC).read())[-1].value)
        service.sync.topic(TOPIC).append([json.dumps({**members, "version": 2}).encode()], tag="r")

    async def check(service: Service) -> None:
        with pytest.raises(Conflict, match="no router of this version"):
            await service.routers.check_appends("b")
        await service.routers.check_appends("a")
        with pytest.raises(Conflict, match="nobody can say whether a router s may be"):
            await made(service, "s", "b", "a")
        listed = shown(service)
        assert (listed.destination, listed.state, "no router of this version" in str(listed.reason)) == (
            "b",
            "stopped",
            True,
        )
        await until(lambda: b'seglog_router_stopped{router="r"} 1.0' in service.metrics.text(), "the metric")
        deleted = {"version": 2, "state": "deleted", "router": "r", "to": "b"}
        service.sync.topic(TOPIC).append([json.dumps(deleted).encode()], tag="r")

    async def check_deleted(service: Service) -> None:
        await service.routers.check_appends("b")

    left = killed(tmp_path, begin)
    in_service(left, check)
    in_service(left, check_deleted)


def test_the_daemon_shows_how_far_a_router_is_behind(tmp_path: Path) -> None:
    async def run(service: Service) -> None:
        await append(service, "a", b"1")
        await made(service)
        await copied(service, "b", b"1")
        await command(service, operations.pause, "r")
        await append(service, "a", b"2", b"3")
        assert b'seglog_router_lag_records{router="r"} 2.0' in service.metrics.text()
        assert b'seglog_router_stopped{router="r"} 0.0' in service.metrics.text()
        await asyncio.to_thread(service.sync.delete_topic, "a")
        assert b'seglog_router_stopped{router="r"} 1.0' in service.metrics.text()

    in_service(tmp_path, run)


async def appended(service: Service, topic: str, *texts: bytes) -> int:
    kind = (b"content-type", b"application/octet-stream")
    answer = [await asked(make_app(service), f"/topics/{topic}/records", kind, method="POST", body=t) for t in texts]
    return answer[-1][0]


@pytest.mark.long  # it starts a process
def test_a_directory_that_follows_the_routers_refuses_appends_to_their_destinations(tmp_path: Path) -> None:
    remote = (tmp_path / "remote").as_uri()

    async def begin(service: Service) -> None:
        await append(service, "a", b"1", b"2")
        await made(service)
        await copied(service, "b", b"1", b"2")
        await offloaded(service, "a", "b", TOPIC)

    async def check(service: Service) -> None:
        assert await appended(service, "b", b"own") == 409
        assert "follows _seglog.routers" in str(shown(service).reason)
        with pytest.raises(Conflict, match="follows"):
            await command(service, operations.delete, "r")
        assert service.archive is not None
        for topic in (TOPIC, "a", "b"):
            await asyncio.to_thread(service.archive.replication.take_over, topic)
        with pytest.raises(Conflict, match="already"):
            await made(service, "r", "a", "c")
        await append(service, "a", b"3")
        await copied(service, "b", b"1", b"2", b"3")

    in_service(tmp_path / "old", begin, remote, OFFLOAD_OFFLOAD_AFTER_S="never")
    assert len([*offload.recover(tmp_path / "new", remote)]) == 3
    in_service(tmp_path / "new", check, remote, OFFLOAD_OFFLOAD_AFTER_S="never")


class _Down(WrappedStore):
    """A store that may be down."""

    is_down = False

    def _call(self, method: str, key: str, act: Callable[[], Any]) -> Any:
        if self.is_down:
            raise ConnectionError("the store is down")
        return act()


def test_an_append_does_not_wait_for_the_store_because_of_routers(tmp_path: Path) -> None:
    store = _Down(MemoryStore())

    async def begin(service: Service) -> None:
        await append(service, "a", b"1")
        await append(service, "free", b"1")
        await made(service, "cold")
        await copied(service, "b", b"1")
        await until(lambda: service.sync.topic(TOPIC).head_seq == 2, "the pair of the beginning")
        await offloaded(service, TOPIC)
        await asyncio.to_thread(service.sync.topic(TOPIC).inner.release, 2)
        await made(service, "hot", destination="c")

    async def check(service: Service) -> None:
        store.is_down = True
        assert await appended(service, "free", b"2") == 201
        assert await appended(service, "c", b"own") == 409  # its record is on the disk
        store.is_down = False
        await look_at_routers(service.routers)
        assert await appended(service, "b", b"own") == 409

    in_service(tmp_path, begin, store, OFFLOAD_OFFLOAD_AFTER_S="never")
    in_service(tmp_path, check, store, OFFLOAD_OFFLOAD_AFTER_S="never", SERVE_STOP_TIMEOUT_S="1")


def test_a_truncation_does_not_fail_because_the_place_of_a_router_cannot_be_read(tmp_path: Path) -> None:
    store, clock = _Down(MemoryStore()), HandClock()
    options = {"clock": clock, "LOG_PRODUCER_KEEP_S": "1", "OFFLOAD_OFFLOAD_AFTER_S": "never"}

    async def begin(service: Service) -> None:
        await append(service, "a", b"1", b"2", b"3")
        await made(service)
        await copied(service, "b", b"1", b"2", b"3")
        await offloaded(service, "a")
        await asyncio.to_thread(service.sync.topic("a").inner.release, 3)
        await command(service, operations.pause, "r")
        await append(service, "a", b"4", b"5")

    async def check(service: Service) -> None:
        store.is_down = True
        await asyncio.to_thread(truncate_in, service, 5)
        assert service.sync.topic("a").head_seq == 4
        await look_at_routers(service.routers)

    def truncate_in(service: Service, seq: int) -> None:
        with operations.truncating(service.sync, service.archive, "a", seq):
            service.sync.topic("a").truncate(seq)

    in_service(tmp_path, begin, store, **options)
    clock.ms += 5000
    in_service(tmp_path, check, store, SERVE_STOP_TIMEOUT_S="1", **options)


def test_appends_that_come_before_the_routers_are_known_read_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin(service: Service) -> None:
        await append(service, "a", b"1")
        await made(service)

    async def check() -> None:
        seglog.open(tmp_path).close()
        async with serving(tmp_path, "") as service:
            looks, real = list[bool](), routers.loaded_states

            def noted(*given: Any, may_wait: bool = True) -> Any:
                looks.append(may_wait)
                return real(*given, may_wait=may_wait)

            monkeypatch.setattr(routers, "loaded_states", noted)
            fresh = routers.Routers(service, service.local)
            await asyncio.gather(*(fresh.check_appends(f"x{number}") for number in range(64)))
            assert looks.count(False) == 1

    in_service(tmp_path, begin)
    asyncio.run(check())
