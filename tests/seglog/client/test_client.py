"""Test the client against a real daemon, over a Unix socket and over TCP with TLS and a token."""

from __future__ import annotations

import pytest

import seglog
from seglog import Record
from seglog.client import Client
from tests.seglog.client.conftest import TOKEN, Place


def test_records_come_back_as_they_were_appended(client: Client, name: str) -> None:
    topic = client.topic(name)
    values = [b"one", b"", b"\xff\n\x00", "ü".encode()]
    receipt = topic.append(values, tag="eu", node="web1", unterminated=True)
    assert (receipt.first_seq, receipt.last_seq, receipt.appended) == (1, 4, 4)
    found = [*topic.read()]
    assert [each.value for each in found if isinstance(each, Record)] == values
    assert {each[3:] for each in found if isinstance(each, Record)} == {("eu", "web1", True)}
    assert [each.seq for each in topic.read(2, 3) if isinstance(each, Record)] == [2, 3]
    assert [each.seq for each in topic.read(limit=1) if isinstance(each, Record)] == [1]
    assert [*topic.read(tag="us")] == []
    assert name in client.topics()


def test_a_truncation_removes_the_records_from_a_seq_on(client: Client, name: str) -> None:
    topic = client.topic(name)
    topic.append([b"x"] * 5)
    assert topic.truncate(3) == 2
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
    with pytest.raises(seglog.DaemonError, match="durability") as refused:
        topic.append([b"x"], durability="never")
    assert refused.value.title == "InvalidSetting"
    assert (refused.value.status, refused.value.exit_code) == (400, 2)


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
