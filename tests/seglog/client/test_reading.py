"""Test reads and followers that resume, against a real daemon behind a proxy that cuts answers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import seglog
from seglog import Gap, Record
from seglog.client import Client, Retries, aio
from tests.array_rows import rows_of
from tests.daemons import ServedDirectory, served
from tests.seglog.client.cutting_proxy import Leak
from tests.worlds.places import Place

QUICK = Retries(total_s=60, least_s=0.001, most_s=0.02)


def seqs_of(items: Iterator[Record | Gap]) -> list[int]:
    return [each.seq for each in items if isinstance(each, Record)]


def test_bounds_say_where_a_topic_begins_and_ends(client: Client, name: str) -> None:
    topic = client.topic(name)
    with pytest.raises(seglog.NoSuchTopic):
        topic.bounds()
    topic.append([b"x"] * 5)
    first = topic.bounds()
    assert (first.earliest_seq, first.head_seq, first.sealed_seq) == (1, 5, 0)
    assert topic.append([b"x"], if_incarnation=first.incarnation) == range(6, 7)
    topic.truncate(3)
    assert topic.bounds().head_seq == 2
    assert topic.bounds().epoch > first.epoch


def test_a_follower_gets_records_as_they_come(client: Client, name: str) -> None:
    topic = client.topic(name)
    topic.append([b"one", b"two"], tag="eu")
    followed = topic.follow(2)
    assert next(followed) == next(topic.read(2, 2))
    topic.append([b"\xff"])
    third = next(followed)
    assert isinstance(third, Record)
    assert (third.seq, third.value) == (3, b"\xff")
    followed.close()  # type: ignore[attr-defined]


def test_a_follower_is_told_of_a_truncation(client: Client, name: str) -> None:
    topic = client.topic(name)
    topic.append([b"x"] * 5)
    followed = topic.follow()
    assert seqs_of(next(followed) for _ in range(5)) == [1, 2, 3, 4, 5]
    topic.truncate(3)
    with pytest.raises(seglog.Truncated) as cut:
        next(followed)
    assert cut.value.seq == 3
    topic.append([b"new"])
    assert cut.value.epoch == topic.bounds().epoch
    topic.truncate(2)
    topic.append([b"newer"] * 2)
    with pytest.raises(seglog.Truncated) as once_more:
        next(topic.follow(cut.value.seq, epoch=cut.value.epoch))
    assert (once_more.value.seq, once_more.value.epoch) == (2, cut.value.epoch + 1)
    again = topic.follow(2, epoch=once_more.value.epoch)
    assert next(again) == next(topic.read(2))
    again.close()  # type: ignore[attr-defined]


def test_a_follower_names_the_records_that_retention_took(client: Client, place: Place, name: str) -> None:
    topic = client.topic(name)
    topic.append([b"x"] * 5)
    place.call("evict", topic=name, before=4, yes=True)
    for broken in (topic.follow(1), topic.read(1)):
        with pytest.raises(seglog.Evicted) as lost:
            next(broken)
        assert (lost.value.gap_from, lost.value.gap_to) == (1, 3)
    followed = topic.follow(1, gaps=True)
    assert [next(followed), next(followed)] == [Gap(1, 3), next(topic.read(4))]
    followed.close()  # type: ignore[attr-defined]


def test_a_follower_that_lags_names_what_retention_takes_meanwhile(client: Client, place: Place, name: str) -> None:
    topic = client.topic(name)
    for _ in range(20):
        topic.append([bytes(100_000)] * 10)
    followed, seen = topic.follow(1), list[int]()
    seen.append(next(followed).seq)  # most of the 20 MB waits for this reader
    place.call("evict", topic=name, before=200, yes=True)
    with pytest.raises(seglog.Evicted) as lost:
        seen.extend(record.seq for record in followed)
    assert (lost.value.gap_from, lost.value.gap_to) == (seen[-1] + 1, 199)
    assert seen == list(range(1, seen[-1] + 1))
    followed = topic.follow(lost.value.gap_to + 1)
    assert next(followed).seq == 200
    followed.close()  # type: ignore[attr-defined]


def test_a_follower_of_a_topic_that_was_made_again_is_told(client: Client, place: Place, name: str) -> None:
    topic = client.topic(name)
    topic.append([b"x"] * 5)
    before = topic.bounds()
    place.call("topic/delete", topic=name, yes=True)
    client.topic(name).append([b"another"] * 9)
    with pytest.raises(seglog.OtherIncarnation):  # this object knows the former one
        next(topic.follow(6, epoch=before.epoch))
    with pytest.raises(seglog.Truncated, match="or deleted and made again") as cut:
        next(client.topic(name).follow(6, epoch=before.epoch))
    assert cut.value.seq == 1


def test_a_read_in_arrow_shows_the_records_of_a_read(client: Client, place: Place, name: str) -> None:
    topic = client.topic(name)
    for tag in ("a", None, "b"):
        topic.append([b"%01000d" % number for number in range(300)], tag=tag)
    topic.append([bytes(600_000), b"\xff", bytes(600_000)], node="n")
    records = list(topic.read())
    assert rows_of(topic.read_arrow(), with_ends=False) == records
    assert rows_of(topic.read_arrow(290, 601), with_ends=False) == records[289:601]
    assert rows_of(topic.read_arrow(tag="b"), with_ends=False) == records[600:900]
    times = {"since_ms": records[300].ts_ms, "until_ms": records[300].ts_ms}
    assert rows_of(topic.read_arrow(**times), with_ends=False) == list(topic.read(**times))
    assert list(topic.read_arrow(904)) == []
    texts = [value for batch in topic.read_arrow(10, 12, text=True) for value in batch["value"].to_pylist()]
    assert [int(text) for text in texts] == [9, 10, 11]
    with pytest.raises(seglog.InvalidArgument, match=f"record 902 of {name} is not UTF-8"):
        list(topic.read_arrow(text=True))
    pages = iter(topic.read_arrow())
    seen = len(next(pages))
    topic.append([b"later"])
    assert seen + sum(len(batch) for batch in pages) == 903
    pages = iter(topic.read_arrow())
    next(pages)
    topic.truncate(900)
    with pytest.raises(seglog.ConcurrentModification):
        list(pages)
    place.call("evict", topic=name, before=4, yes=True)
    for absent, error in (
        (topic.read_arrow(1), seglog.Evicted),
        (topic.read_arrow(5_000), seglog.SeqOutOfRange),
        (client.topic("absent").read_arrow(), seglog.NoSuchTopic),
    ):
        with pytest.raises(error):
            list(absent)


def test_the_plain_client_gives_a_reader_that_resumes(daemon: ServedDirectory) -> None:
    with seglog.connect(f"http://127.0.0.1:{daemon.port}") as direct:
        direct.topic("arrow").append([b"x" * 1_000] * 3_000)
        # The proxy ends each connection after one page and a half.
        with Leak(daemon.port, 800_000) as leak:
            with seglog.connect(f"http://127.0.0.1:{leak.port}", retries=QUICK) as client:
                reader = client.topic("arrow").read_arrow(text=True)
                assert isinstance(reader, pa.RecordBatchReader)
                assert reader.schema == seglog.arrow_schema(text=True)
                first = reader.read_next_batch()
                direct.topic("arrow").append([b"later"])
                rest = reader.read_all()
            assert leak.connections > 2
    assert first["seq"].to_pylist() + rest["seq"].to_pylist() == [*range(1, 3_001)]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    directory = tmp_path_factory.mktemp("data")
    seglog.open(directory).close()
    with served(directory, tmp_path_factory.mktemp("remote").as_uri()) as running:
        yield running


@pytest.mark.parametrize("limit", [5_000, 60_000, 300_000])
def test_a_read_that_breaks_off_resumes_and_yields_each_record_once(daemon: ServedDirectory, limit: int) -> None:
    with seglog.connect(f"http://127.0.0.1:{daemon.port}") as direct:
        direct.topic(f"t{limit}").append([b"x" * 1_000] * 500)
    with Leak(daemon.port, limit) as leak, seglog.connect(f"http://127.0.0.1:{leak.port}", retries=QUICK) as client:
        assert seqs_of(client.topic(f"t{limit}").read()) == [*range(1, 501)]
        assert seqs_of(client.topic(f"t{limit}").read(100, limit=200)) == [*range(100, 300)]
        assert leak.connections > 2


@pytest.mark.parametrize("driver", ["plain", "asyncio"])
@pytest.mark.parametrize("end", [None, 300, 5_000])
def test_a_read_that_resumes_shows_no_record_that_came_after_it_began(
    daemon: ServedDirectory, driver: str, end: int | None
) -> None:
    name = f"resumed-{driver}-{end}"
    with seglog.connect(f"http://127.0.0.1:{daemon.port}") as direct, Leak(daemon.port, 60_000) as leak:
        direct.topic(name).append([b"x" * 1_000] * 500)
        seen: list[int] = []

        def see(item: Record) -> None:
            if not seen:
                direct.topic(name).append([b"later"] * 7)
            seen.append(item.seq)

        async def in_a_loop() -> None:
            async with aio.connect(f"http://127.0.0.1:{leak.port}", retries=QUICK) as client:
                async for item in client.topic(name).read(end=end):
                    see(item)

        if driver == "asyncio":
            asyncio.run(in_a_loop())
        else:
            with seglog.connect(f"http://127.0.0.1:{leak.port}", retries=QUICK) as client:
                for item in client.topic(name).read(end=end):
                    see(item)
        assert seen == [*range(1, min(end or 500, 500) + 1)]
        assert leak.connections > 2


def test_a_read_of_a_past_state_that_resumes_stays_in_that_state(daemon: ServedDirectory) -> None:
    with (
        seglog.connect(f"http://127.0.0.1:{daemon.port}") as direct,
        Leak(daemon.port, 60_000) as leak,
        seglog.connect(f"http://127.0.0.1:{leak.port}", retries=QUICK) as client,
    ):
        topic = direct.topic("past")
        topic.append([b"x" * 1_000] * 300)
        topic.seal()
        direct.archive.offload("past")
        direct.archive.delete("past", seqs=[1])
        found = client.archive.read("past", at="head~1")
        first = next(found)
        for seq in (300, 299):
            direct.archive.delete("past", seqs=[seq])
        assert [first.seq, *seqs_of(found)] == [*range(1, 301)]
        assert leak.connections > 2
        assert seqs_of(client.archive.read("past", at="head~1"))[-1] == 299


def test_a_read_that_never_gets_a_whole_record_gives_up(daemon: ServedDirectory) -> None:
    with seglog.connect(f"http://127.0.0.1:{daemon.port}") as direct:
        direct.topic("long").append([bytes(10_000)])
    retries = Retries(total_s=0.2, least_s=0.01)
    with Leak(daemon.port, 1_000) as leak, seglog.connect(f"http://127.0.0.1:{leak.port}", retries=retries) as client:
        with pytest.raises(seglog.DaemonGone):
            next(client.topic("long").read())
        assert 1 < leak.connections < 30


def test_a_read_over_a_truncation_is_refused(daemon: ServedDirectory) -> None:
    with (
        seglog.connect(f"http://127.0.0.1:{daemon.port}") as direct,
        Leak(daemon.port, 200_000) as leak,
        seglog.connect(f"http://127.0.0.1:{leak.port}", retries=QUICK) as client,
    ):
        direct.topic("cut").append([b"x" * 1_000] * 1000)
        found = client.topic("cut").read()
        next(found)
        direct.topic("cut").truncate(1000)
        with pytest.raises(seglog.ConcurrentModification):
            seqs_of(found)


def test_a_follower_resumes_after_the_daemon_was_killed(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    seglog.open(directory).close()
    with seglog.connect(f"unix:{directory}", retries=QUICK) as client:
        topic = client.topic("t")
        with served(directory, "") as first:
            topic.append([b"1", b"2"])
            followed = topic.follow()
            assert seqs_of(next(followed) for _ in range(2)) == [1, 2]
            first.process.send_signal(signal.SIGKILL)
        with served(directory, "") as second:
            topic.append([b"3"])
            assert seqs_of(next(followed) for _ in range(1)) == [3]
            second.process.send_signal(signal.SIGTERM)
        with served(directory, ""):
            topic.truncate(2)
            with pytest.raises(seglog.Truncated) as cut:
                next(followed)
            assert cut.value.seq == 2


def test_a_client_gives_up_after_its_time(place: Place, tmp_path: Path) -> None:
    with seglog.connect(f"unix:{tmp_path}", retries=Retries(total_s=0.05, least_s=0.01)) as client:
        for call in (client.topics, client.topic("t").bounds, lambda: next(client.topic("t").read())):
            with pytest.raises(seglog.DaemonGone):
                call()


def test_a_follower_of_several_topics_gets_the_records_of_each_in_order(client: Client, name: str) -> None:
    first, second = client.topic(name), client.topic(f"{name}-b")
    first.append([b"a1", b"a2"])
    second.append([b"b1"])
    with client.follow([f"{name}:2", f"{name}-b"]) as follower:
        topic, record = next(follower)
        assert (topic, record) == (name, next(first.read(2)))
        second.append([b"b2"])
        each = next(follower)
        epoch = second.bounds().epoch
        assert (each.topic, each.record, each.epoch) == (f"{name}-b", next(second.read(2)), epoch)
        assert follower.position == each.position == f"{name}:{first.bounds().epoch}-2,{name}-b:{epoch}-2"
        first.truncate(2)
        with pytest.raises(seglog.Truncated) as cut:
            next(follower)
        assert (cut.value.topic, cut.value.seq) == (name, 2)
        first.append([b"other"])
        assert next(follower).record == next(first.read(2))
        with pytest.raises(seglog.Misuse, match="no cursor"):
            follower.ack(each)
    with client.follow([name, f"{name}-b"], position=each.position, timeout_s=0.2) as again:
        with pytest.raises(seglog.Truncated):
            next(again)
        assert [each.record.seq for each in again] == [2]


def test_a_follower_of_several_topics_names_what_is_wrong(client: Client, name: str) -> None:
    client.topic(name).append([b"x"])
    with pytest.raises(seglog.NoSuchTopic):
        next(client.follow([name, "absent"]))
    with pytest.raises(seglog.InvalidArgument):
        client.follow([])
    with pytest.raises(seglog.InvalidArgument):
        client.follow(name)
    with pytest.raises(seglog.InvalidArgument):
        client.follow([name], cursor=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("driver", ["plain", "asyncio"])
def test_a_follower_of_several_topics_that_breaks_off_yields_each_record_once(
    daemon: ServedDirectory, driver: str
) -> None:
    names = [f"many-{driver}-{number}" for number in range(3)]
    seen: dict[str, list[int]] = {name: [] for name in names}

    async def in_a_loop(url: str) -> None:
        async with aio.connect(url, retries=QUICK) as client, client.follow([f"{name}:1" for name in names]) as found:
            async for topic, record in found:
                seen[topic].append(record.seq)
                if sum(map(len, seen.values())) == 600:
                    return

    with seglog.connect(f"http://127.0.0.1:{daemon.port}") as direct, Leak(daemon.port, 60_000) as leak:
        for name in names:
            direct.topic(name).append([b"x" * 1_000] * 200)
        url = f"http://127.0.0.1:{leak.port}"
        if driver == "asyncio":
            asyncio.run(in_a_loop(url))
        else:
            with seglog.connect(url, retries=QUICK) as client:
                found = client.follow([f"{name}:1" for name in names])
                for _ in range(600):
                    topic, record = next(found)
                    seen[topic].append(record.seq)
                found.close()
        assert seen == {name: [*range(1, 201)] for name in names}
        assert leak.connections > 5
