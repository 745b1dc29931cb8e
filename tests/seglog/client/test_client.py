"""Test the client against a real daemon, over a Unix socket and over TCP with TLS and a token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import seglog
from offload.errors import InvalidOption
from seglog import Record
from seglog.client import Batching, Client, Retries, aio
from tests.worlds.places import TOKEN, Place


def test_records_come_back_as_they_were_appended(client: Client, name: str) -> None:
    topic = client.topic(name)
    values = [b"one", b"", b"\xff\n\x00", "ü".encode()]
    assert topic.append(values, tag="eu", node="web1", unterminated=True) == range(1, 5)
    found = [*topic.read()]
    assert [each.value for each in found if isinstance(each, Record)] == values
    assert {each[3:] for each in found if isinstance(each, Record)} == {("eu", "web1", True)}
    assert [each.seq for each in topic.read(2, 3) if isinstance(each, Record)] == [2, 3]
    assert [each.seq for each in topic.read(limit=1) if isinstance(each, Record)] == [1]
    assert [*topic.read(tag="us")] == []
    assert name in client.topics()


def test_a_record_in_chunks_is_there_whole_or_not_at_all(client: Client, name: str) -> None:
    def chunks(error: Exception | None = None) -> Iterator[bytes]:
        for number in range(40):
            yield bytes([number]) * 100_000
        if error is not None:
            raise error

    topic = client.topic(name)
    for mine in (ConnectionResetError("mine"), ValueError("mine"), seglog.NoSuchTopic("mine")):
        with pytest.raises(type(mine), match="mine"):
            topic.append_stream(chunks(mine))
    assert name not in client.topics()
    assert topic.append_stream(chunks(), tag="eu").seqs == range(1, 2)
    with pytest.raises(seglog.HeadMoved):
        topic.append_stream(chunks(), if_head=0)
    with pytest.raises(seglog.RecordTooLarge):
        topic.append_stream(chunk for _ in range(9) for chunk in chunks())
    [record] = topic.read(tag="eu")
    assert record.value == b"".join(chunks())


def test_a_truncation_removes_the_records_from_a_seq_on(client: Client, name: str) -> None:
    topic = client.topic(name)
    topic.append([b"x"] * 5)
    topic.truncate(3)
    assert [each.seq for each in topic.read() if isinstance(each, Record)] == [1, 2]


def test_a_large_answer_comes_whole(client: Client, name: str) -> None:
    topic = client.topic(name)
    for first in (0, 1):
        topic.append([bytes([first]) * 300_000] * 10)
    assert [len(each.value) for each in topic.read() if isinstance(each, Record)] == [300_000] * 20


def test_errors_of_the_daemon_keep_their_class_and_their_hint(client: Client, name: str) -> None:
    topic = client.topic(name)
    with pytest.raises(seglog.NoSuchTopic) as missing:
        next(topic.read())
    assert missing.value.topic == name
    with pytest.raises(seglog.InvalidSetting, match="durability"):
        topic.append([b"x"], durability="never")
    assert topic.append([b"x"], key="once") == range(1, 2)
    with pytest.raises(seglog.KeyReused) as reused:
        topic.append([b"y", b"z"], key="once")
    assert (reused.value.key, reused.value.first_seq, reused.value.records) == ("once", 1, 1)
    with pytest.raises(seglog.SeqOutOfRange) as outside:
        next(topic.read(9))
    assert (outside.value.seq, outside.value.first, outside.value.last) == (9, 1, 1)


def test_a_client_that_was_never_answered_gives_up_soon_and_says_what_to_look_at(
    free_port: Callable[[], int], tmp_path: Path
) -> None:
    once = Retries(total_s=3600, least_s=0.01, connect_s=0)
    for url in (f"http://127.0.0.1:{free_port()}", f"unix:{tmp_path}"):
        with seglog.connect(url, retries=once) as client:
            for call in (client.topics, client.topic("t").bounds, lambda: next(client.topic("t").follow())):
                with pytest.raises(seglog.DaemonGone) as gone:
                    call()
                assert url in str(gone.value)
                assert gone.value.hint == "look whether a daemon serves this address, then try again"
            with pytest.raises(seglog.DaemonGone), client.topic("t").producer("p", epoch=1) as producer:
                producer.send(b"x")

    async def ask() -> None:
        async with aio.connect(f"http://127.0.0.1:{free_port()}", retries=once) as client:
            with pytest.raises(seglog.DaemonGone):
                await client.topics()

    asyncio.run(ask())


def test_a_wrong_token_is_refused_at_once(place: Place) -> None:
    with (
        seglog.connect(place.url("https"), token="wrong" + TOKEN, ca_file=place.ca_file) as client,
        pytest.raises(seglog.DaemonError) as refused,
    ):
        client.topics()
    assert refused.value.status == 401


def test_a_certificate_that_is_not_trusted_is_refused_at_once(place: Place) -> None:
    with seglog.connect(place.url("https"), token=TOKEN) as client, pytest.raises(seglog.DaemonGone, match="certif"):
        client.topics()


@pytest.mark.parametrize("identity", ["ключ", "a b", "k" * 256])
def test_a_producer_and_a_key_may_be_any_text(client: Client, name: str, identity: str) -> None:
    topic = client.topic(name[:60])
    first = topic.append_once([b"x"], key=identity)
    assert (first.duplicate, first.seqs) == (False, range(1, 2))
    again = client.topic(name[:60]).append_once([b"x"], key=identity)
    assert (again.duplicate, again.seqs) == (True, range(1, 2))
    batch = seglog.ProducerBatch(identity, 1, 0)
    assert [topic.append_once([b"y"] * 2, producer=batch).duplicate for _ in range(2)] == [False, True]


def test_a_condition_that_does_not_hold_is_the_error_of_the_log(client: Client, name: str) -> None:
    topic = client.topic(name)
    assert topic.append([b"x"], if_head=0) == range(1, 2)
    with pytest.raises(seglog.HeadMoved) as moved:
        topic.append([b"x"], if_head=0)
    assert moved.value.head == 1
    topic.append([b"x"], producer=seglog.ProducerBatch("p", 5, 0))
    with pytest.raises(seglog.ProducerFenced) as fenced:
        topic.append([b"x"], producer=seglog.ProducerBatch("p", 4, 0))
    assert fenced.value.current == 5
    with pytest.raises(seglog.ProducerGap) as gap:
        topic.append([b"x"], producer=seglog.ProducerBatch("p", 5, 9))
    assert gap.value.expected == 1


def test_a_condition_that_is_no_incarnation_is_refused_and_not_left_out(client: Client, name: str) -> None:
    topic = client.topic(name)
    for wrong in ("", "z\nx"):
        with pytest.raises(seglog.InvalidArgument, match="if_incarnation"):
            topic.append([b"x"], if_incarnation=wrong)
    assert topic.append([b"x"]) == range(1, 2)
    with pytest.raises(seglog.OtherIncarnation):
        topic.append([b"x"], if_incarnation="another")


def test_a_topic_that_was_made_again_takes_no_batch_of_before(place: Place, client: Client, name: str) -> None:
    topic = client.topic(name)
    topic.append([b"x"], producer=seglog.ProducerBatch("p", 1, 0))
    place.call("topic/delete", topic=name, yes=True)
    for given in ({"key": "k"}, {"producer": seglog.ProducerBatch("p", 1, 1)}):
        with pytest.raises(seglog.OtherIncarnation):
            topic.append([b"y"], **given)
    with pytest.raises(seglog.NoSuchTopic):
        next(topic.read())
    client.topic(name).append([b"y"])
    with pytest.raises(seglog.OtherIncarnation) as other:
        topic.append([b"y"], producer=seglog.ProducerBatch("p", 1, 1))
    assert other.value.found != other.value.known
    assert client.topic(name).append([b"y"], producer=seglog.ProducerBatch("p", 1, 0)) == range(2, 3)


def test_a_second_program_with_the_id_and_epoch_of_a_first_one_loses_no_record_in_silence(
    client: Client, name: str
) -> None:
    """The log compares no values, so it takes the first batch of the second program for a repetition."""
    topic = client.topic(name)
    with topic.producer("job", epoch=0) as first:
        first.send(b"first")
    for values in ([b"second"], [b"x", b"y"]):
        second = topic.producer("job", epoch=0, batching=Batching(linger_s=60.0))
        for each in values:
            second.send(each)
        with pytest.raises(seglog.BatchReused, match="with 1 records") as refused:
            second.close()
        assert "take a new id" in str(refused.value.hint)
        assert (second.acked, second.last_seq) == (0, None)
    with topic.producer("job", epoch=1) as third:
        third.send(b"third")
    assert [each.value for each in topic.read() if isinstance(each, Record)] == [b"first", b"third"]
    with pytest.raises(seglog.BatchReused):
        topic.append([b"x", b"y"], producer=seglog.ProducerBatch("job", 1, 0))


def test_a_producer_sends_records_with_different_labels(client: Client, name: str) -> None:
    with client.topic(name).producer("p", epoch=1) as producer:
        for number in range(6):
            producer.send(b"%d" % number, tag="odd" if number % 2 else None, node="n")
    assert (producer.acked, producer.last_seq) == (6, 6)
    found = [each for each in client.topic(name).read() if isinstance(each, Record)]
    assert [(each.value, each.tag) for each in found] == [
        (b"%d" % number, "odd" if number % 2 else None) for number in range(6)
    ]


def test_a_producer_whose_block_fails_leaves_out_the_records_without_a_number(client: Client, name: str) -> None:
    batching = Batching(linger_s=60)
    producer = client.topic(name).producer("p", epoch=1, batching=batching)

    def fail() -> None:
        with producer:
            producer.send(b"x")
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()
    assert producer.acked == 0
    with pytest.raises(seglog.Misuse, match="closed"):
        producer.send(b"y")
    assert name not in client.topics()


def test_a_batch_that_is_refused_ends_its_producer(client: Client, name: str) -> None:
    producer = client.topic(name).producer("p", epoch=1, durability="never")
    producer.send(b"x")
    for call in (producer.flush, producer.flush, producer.close):
        with pytest.raises(InvalidOption, match="durability"):
            call()
    assert producer.acked == 0


def test_a_queue_hands_out_jobs_and_takes_their_acks(client: Client, place: Place, name: str) -> None:
    client.topic(name).append([b"one", b"\xff", b"three"], tag="eu")
    with pytest.raises(seglog.Missing, match="has no queue billing"):
        client.queue(name, "billing").claim()
    place.call("queue/create", topic=name, name="billing", lease="1h")
    queue = client.queue(name, "billing")
    one, two = queue.claim(2, worker="ada")
    assert (one.seq, one.value, one.record.tag, one.deliveries) == (1, b"one", "eu", 1)
    assert (queue.ack(one, two).done, queue.ack(one).done) == ((1, 2), (1,))
    [three] = queue.claim(5, wait_s=0.1)
    assert queue.extend(three).done == (3,)
    assert queue.nack(three).done == (3,)
    [again] = queue.claim()
    assert (again.seq, again.deliveries) == (3, 2)
    with pytest.raises(seglog.LeaseLost) as lost:
        queue.ack(three)
    assert (lost.value.topic, lost.value.queue, lost.value.seq) == (name, "billing", 3)
    settled = queue.ack(three, again)
    assert (settled.done, settled.lost) == ((3,), ())
    assert queue.claim(wait_s=0.1) == []
