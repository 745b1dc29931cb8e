"""Records, labels, names and seqs are empty, too large, of the wrong type, or not what the caller thinks."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog import (
    InvalidArgument,
    InvalidLabel,
    InvalidName,
    Log,
    LogSettings,
    NoSuchTopic,
    RecordTooLarge,
    SeqOutOfRange,
)
from seglog.engine.work_thread import InCaller
from seglog.format.frame import HEADER, LABEL_MAX_BYTES, encode_sync_mark
from seglog.journal.journal import Journal
from tests.arguments import refused
from tests.faults.files import UnsyncedFiles
from tests.promises.mistakes.scene import filled, numbered, tree, values
from tests.worlds.log_calls import LOG, World


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Ten records in the topic orders. Whatever a test does, they are there afterwards."""
    with seglog.open(tmp_path / "data", files=UnsyncedFiles(), settings=LogSettings(max_record_bytes=1000)) as log:
        log.topic("orders").append(numbered(10))
        yield log
    assert values(tmp_path / "data")[:10] == numbered(10)


def test_a_record_is_empty(log: Log) -> None:
    """A program appends records of zero bytes.

    Outcome: nothing is lost. An empty record has its seq, and readers get it.
    """
    assert log.topic("orders").append([b"", b"x", b""]) == range(11, 14)
    log.topic("orders").seal()
    assert [record.value for record in log.topic("orders").read(11)] == [b"", b"x", b""]


def test_a_record_is_as_large_as_the_limit_and_one_byte_larger(log: Log) -> None:
    """A program appends a record of exactly `max_record_bytes`, and then one that is a byte larger.

    Outcome: the first is taken. The second is refused with `RecordTooLarge`, with all that is in the same call.
    """
    log.topic("orders").append([b"x" * 1000])
    for too_large in ([b"x" * 1001], [b"small", b"x" * 1001, b"small"]):
        with pytest.raises(RecordTooLarge, match="1001 bytes is over the limit of 1000"):
            log.topic("orders").append(too_large)
    assert log.topic("orders").append([b"next"]) == range(12, 13)


def test_no_record_is_appended(log: Log) -> None:
    """A program appends an empty list, also to a topic that is not there.

    Outcome: nothing happens. The result is an empty range, and no topic is made.
    """
    assert log.topic("orders").append([]) == range(11, 11)
    assert log.topic("new").append([]) == range(1, 1)
    assert log.topics() == ["orders"]


def test_records_are_of_the_wrong_type(log: Log) -> None:
    """A program appends a text, None, a number, one byte string instead of a list, or a list with one of these in it.

    Outcome: refused with `InvalidArgument`, which names the argument; nothing of the call is appended.
    """
    wrong: tuple[Any, ...] = ("text", None, 7, b"alone", bytearray(b"alone"), {b"x"}, [b"good", "text"], [None], [7])
    for given in wrong:
        with pytest.raises(InvalidArgument, match="values"):
            log.topic("orders").append(given)
    assert log.topic("orders").head_seq == 10


def test_records_come_from_a_generator(log: Log) -> None:
    """A program appends a generator: one that ends, one that raises in the middle, one that appends to the same topic.

    Outcome: nothing is lost. All of a generator is appended, or nothing if it raises; its own appends come before.
    """
    topic = log.topic("orders")

    def raises() -> Iterator[bytes]:
        yield b"never there"
        raise ZeroDivisionError

    def appends() -> Iterator[bytes]:
        yield b"outer 1"
        topic.append([b"inner"])
        yield b"outer 2"

    assert topic.append(iter([b"a", b"b"])) == range(11, 13)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        topic.append(raises())  # type: ignore[arg-type]
    assert topic.append(appends()) == range(14, 16)  # type: ignore[arg-type]
    assert [record.value for record in topic.read(11)] == [b"a", b"b", b"inner", b"outer 1", b"outer 2"]


def test_a_hundred_thousand_records_in_one_call(log: Log, tmp_path: Path) -> None:
    """A program appends a whole file of lines in one call.

    Outcome: all of them are taken as one append, and read in their order.
    """
    lines = [b"%d" % number for number in range(100_000)]
    assert log.topic("lines").append(lines) == range(1, 100_001)
    assert [record.value for batch in log.topic("lines").read_batches() for record in batch] == lines


def test_another_thread_changes_what_is_appended(log: Log) -> None:
    """A program appends a list of bytearrays while another thread changes the list and the bytes in it.

    Outcome: nothing is lost. Each record is what it was at one moment, and the log opens again.
    """
    shared = [bytearray(b"a" * 100) for _ in range(20)]
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            shared.append(bytearray(b"b" * 100))
            shared[0][:] = b"c" * (len(shared) % 7)
            del shared[1]

    thread = threading.Thread(target=change)
    thread.start()
    try:
        acked = [len(log.topic("shared").append(shared)) for _ in range(100)]
    finally:
        stop.set()
        thread.join()
    assert sum(acked) == log.topic("shared").head_seq
    found = [record.value for record in log.topic("shared").read()]
    assert len(found) == sum(acked)
    assert all(set(value) <= {*b"abc"} for value in found)


def test_tags_and_nodes_are_odd(log: Log) -> None:
    """A program tags records with an empty text, NUL, a line end, a star, other scripts, and with one that is too long.

    Outcome: a tag is kept as it is. One that is too long, or no UTF-8, is refused with `InvalidLabel`.
    """
    topic = log.topic("orders")
    odd = ("", "a\0b", "a\nb", "a/b", "x*", "Ωорд", "o" * LABEL_MAX_BYTES)
    for text in odd:
        topic.append([b"odd"], tag=text, node=text)
    assert [(record.tag, record.node) for record in topic.read(11)] == [(text, text) for text in odd]
    for text in ("o" * (LABEL_MAX_BYTES + 1), "é" * LABEL_MAX_BYTES, "\ud800"):
        for label in ("tag", "node"):
            with pytest.raises((InvalidLabel, InvalidArgument), match=label):
                topic.append([b"never"], **{label: text})  # type: ignore[arg-type]
    topic.delete(tag="a\0b")
    assert topic.head_seq == 10 + len(odd)
    assert "a\0b" not in [record.tag for record in topic.read(11)]


def test_topic_names_are_odd(log: Log) -> None:
    """A program uses topic names that are empty, too long, paths, have spaces, NUL or a line end, or look like others.

    Outcome: refused with `InvalidName`; an absent branch is `NoSuchTopic`. No topic is made.
    """
    odd = ("", "a b", "orders ", "orders\n", "a\0b", "a/b", "../a", ".", "@x", "a@", "x" * 129, "ord\u0435rs", "örders")
    for name in odd:
        with pytest.raises(InvalidName):
            log.topic(name).append([b"x"])
    with pytest.raises(NoSuchTopic):
        log.topic("orders@branch").append([b"x"])
    assert log.topics() == ["orders"]


def test_topic_names_differ_in_case_only(log: Log) -> None:
    """A program appends to topics whose names differ in upper and lower case only.

    Outcome: nothing is lost. They are two topics.
    """
    log.topic("ORDERS").append([b"other"])
    assert log.topics() == ["ORDERS", "orders"]
    assert [record.value for record in log.topic("ORDERS").read()] == [b"other"]


def test_a_delete_goes_beyond_the_head(log: Log) -> None:
    """A program deletes before a seq that is far beyond the head, and appends afterwards.

    Outcome: what was there is deleted, as asked; what is appended later is not.
    """
    topic = log.topic("queue")
    topic.append(numbered(5))
    topic.delete(before=10**9)
    topic.append([b"later"])
    topic.seal()
    assert [(record.seq, record.value) for record in topic.read()] == [(6, b"later")]


def test_a_delete_has_no_condition(log: Log) -> None:
    """A program calls `delete()` without a condition, or with None for both.

    Outcome: refused with `InvalidSetting`; nothing is deleted.
    """
    with pytest.raises(seglog.InvalidSetting):
        log.topic("orders").delete()
    with pytest.raises(seglog.InvalidSetting):
        log.topic("orders").delete(before=None, tag=None)


def test_a_read_begins_where_there_is_nothing(log: Log) -> None:
    """A program counts from 0, reads from far beyond the head, or from a higher seq to a lower one.

    Outcome: seq 0 and a start beyond the next seq are refused with `SeqOutOfRange`; a range without records is empty.
    """
    topic = log.topic("orders")
    for start in (0, 12, 10**9):
        with pytest.raises(SeqOutOfRange):
            topic.read(start)
    assert list(topic.read(11)) == list(topic.read(8, 3)) == []
    assert len(list(topic.read(1, 10**9))) == 10


def test_a_topic_is_truncated_beyond_its_head(log: Log) -> None:
    """A program truncates a topic at a seq that is beyond its head.

    Outcome: refused with `SeqOutOfRange`; nothing is removed.
    """
    with pytest.raises(SeqOutOfRange):
        log.topic("orders").truncate(100)
    log.topic("orders").truncate(11)


def test_a_value_imitates_the_files_of_the_log(tmp_path: Path) -> None:
    """A client appends a value with forged sync marks, and the power fails within the write.

    Outcome: nothing is lost. The log opens with every acked record, and without that value.
    """
    data = tmp_path / "data"
    with seglog.open(data) as log:
        log.topic("orders").append(numbered(10))
        begin = log.wal_bytes
        marks = b"".join(encode_sync_mark(1, begin + HEADER.size + 8192 + at) for at in range(0, 46 * 500, 46))
        log.topic("orders").append([bytes(8192) + marks])
        end = log.wal_bytes
        shutil.copytree(data, tmp_path / "copy")
    with (tmp_path / "copy/wal/wal-0000000000000001.log").open("r+b") as file:
        for place in (begin, end - 4096):  # the first page of the write, and the last one with its sync mark
            file.seek(place)
            file.write(bytes(4096))
    assert values(tmp_path / "copy") == numbered(10)


def test_the_power_fails_within_an_append_of_many_records(tmp_path: Path) -> None:
    """A program appends 30 records with one call, and the power fails within the write.

    Outcome: all of them are there, or none. Whoever appends them again never has a part of them twice.
    """
    data = tmp_path / "data"
    with seglog.open(data) as log:
        log.topic("orders").append(numbered(10))
        begin = log.wal_bytes
        log.topic("orders").append([b"x" * 400] * 30)
        shutil.copytree(data, tmp_path / "copy")
    with (tmp_path / "copy/wal/wal-0000000000000001.log").open("r+b") as file:
        file.seek(begin + 8192)
        file.write(bytes(8192))
    assert values(tmp_path / "copy") == numbered(10)


def test_an_argument_is_of_the_wrong_type(tmp_path: Path) -> None:
    """A program gives an argument of the wrong type to any call: a text for a seq, a float, True, a number for a name.

    Outcome: refused with `InvalidArgument`, which names the argument, before anything is written.
    """
    filled(tmp_path / "log")
    with seglog.open(tmp_path / "log", upkeep=InCaller) as log, Journal(tmp_path / "journal") as journal:
        world = World(tmp_path, log, journal)
        before = tree(tmp_path / "log")
        for name in ("Topic.append", "Topic.delete"):
            assert refused(world, name, LOG[name], seglog.Misuse) == []
        assert tree(tmp_path / "log") == before
    assert values(tmp_path / "log") == numbered(10)
