"""Every public call of the client refuses an argument of a wrong type or range by its name, before any request."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import seglog
from seglog import InvalidArgument, Misuse, ProducerBatch, Record
from seglog import client as package
from seglog.client import Batching, Client, Job, Retries, aio
from tests.arguments import Row, calls_of, refused
from tests.worlds.log_calls import DELETE, DELETE_OPTIONAL

VALUES = (Retries, Batching)
RECORD = {"tag": "text", "node": "text", "unterminated": "bool"}
APPEND = {
    "values": "values",
    **RECORD,
    "durability": "text",
    "producer": "instance",
    "key": "text",
    "if_head": "whole",
    "if_incarnation": "text",
}
APPEND_OPTIONAL = "tag node durability producer key if_head if_incarnation"
READ = {
    "start": "whole",
    "end": "whole",
    "since_ms": "whole",
    "until_ms": "whole",
    "tag": "text",
    "limit": "whole",
    "gaps": "bool",
}


def _of_topic(call: str, takes: dict[str, str], optional: str = "", **fit: object) -> Row:
    def run(client: Client, **given: Any) -> object:
        found = getattr(client.topic("t"), call)(**given)
        return next(found) if isinstance(found, Iterator) else found

    return Row(run, takes, fit, frozenset(optional.split()))


def _of_archive(call: str, takes: dict[str, str], optional: str = "", **fit: object) -> Row:
    run = lambda client, **given: getattr(client.archive, call)(**given)  # noqa: E731
    return Row(run, takes, fit, frozenset(optional.split()))


def _of_branches(call: str, takes: dict[str, str], **fit: object) -> Row:
    return Row(lambda client, **given: getattr(client.archive.branches, call)(**given), takes, fit)


def _send(client: Client, **given: Any) -> None:
    client.topic("t").producer("p", epoch=1).send(**given)


ROWS = {
    "Client.topic": Row(lambda client, **given: client.topic(**given), {"name": "name"}),
    "Client.follow": Row(
        lambda client, **given: client.follow(**given),
        {
            "topics": "texts",
            **dict.fromkeys(("cursor", "position", "tag"), "text"),
            **dict.fromkeys(("gaps", "strong"), "bool"),
            "timeout_s": "number",
        },
        {"topics": ["t"]},
        frozenset({"cursor", "position", "tag", "timeout_s"}),
    ),
    "RemoteFollower.ack": Row(
        lambda client, records: client.follow(["t"], cursor="c").ack(records), {"records": "instance"}
    ),
    "Client.queue": Row(
        lambda client, **given: client.queue(**given), {"topic": "text", "name": "text"}, {"topic": "t", "name": "q"}
    ),
    "RemoteQueue.claim": Row(
        lambda client, **given: client.queue("t", "q").claim(**given),
        {"most": "whole", "wait_s": "number", "worker": "text"},
        {},
        frozenset({"worker"}),
    ),
    **{
        f"RemoteQueue.{call}": Row(
            lambda client, call=call, jobs=(), **given: getattr(client.queue("t", "q"), call)(jobs, **given),
            {"jobs": "instance", **({"delay_ms": "whole"} if call == "nack" else {})},
            {"jobs": Job(Record(1, 0, b""), "0" * 16, 1, 0)},
        )
        for call in ("ack", "nack", "extend")
    },
    "RemoteTopic.append": _of_topic("append", APPEND, APPEND_OPTIONAL, values=[b"x"]),
    "RemoteTopic.append_once": _of_topic("append_once", APPEND, APPEND_OPTIONAL, values=[b"x"]),
    "RemoteTopic.append_stream": _of_topic(
        "append_stream",
        {"chunks": "chunks", **{name: APPEND[name] for name in APPEND if name != "values"}},
        APPEND_OPTIONAL,
        chunks=[b"x"],
    ),
    "RemoteTopic.producer": _of_topic(
        "producer",
        {"id": "text", "epoch": "whole", "batching": "instance", "durability": "text"},
        "durability",
        id="p",
        epoch=1,
    ),
    "RemoteTopic.read": _of_topic("read", READ, "start end since_ms until_ms tag limit"),
    "RemoteTopic.read_arrow": _of_topic(
        "read_arrow",
        {key: READ[key] for key in ("start", "end", "since_ms", "until_ms", "tag")} | {"text": "bool"},
        "start end since_ms until_ms tag",
    ),
    "RemoteTopic.follow": _of_topic(
        "follow",
        {"start": "whole", "epoch": "whole", "timeout_s": "number", "tag": "text", "gaps": "bool"},
        "start epoch timeout_s tag",
    ),
    "RemoteTopic.truncate": _of_topic("truncate", {"seq": "whole"}, seq=1),
    "RemoteTopic.evict": _of_topic("evict", {"before": "whole"}, before=1),
    "RemoteTopic.delete": _of_topic("delete", DELETE, DELETE_OPTIONAL),
    "RemoteArchive.offload": _of_archive(
        "offload", {"name": "text", "up_to": "whole", "drop_hot": "bool"}, "up_to", name="t"
    ),
    "RemoteArchive.read": _of_archive(
        "read", {"name": "name", "start": "whole", "end": "whole", "at": "text"}, "start end at", name="t"
    ),
    "RemoteArchive.delete": _of_archive(
        "delete", {"name": "text", "message": "text", **DELETE}, DELETE_OPTIONAL, name="t"
    ),
    "RemoteArchive.evict": _of_archive(
        "evict", {"name": "text", "before": "whole", "message": "text"}, name="t", before=1
    ),
    "RemoteArchive.truncate": _of_archive(
        "truncate", {"name": "text", "seq": "whole", "message": "text"}, name="t", seq=1
    ),
    "RemoteArchive.restore": _of_archive(
        "restore", dict.fromkeys(("topic", "to", "name", "message"), "text"), topic="t", to="head", name="b"
    ),
    "RemoteArchive.open_for_append": _of_archive("open_for_append", {"name": "name"}),
    "RemoteBranches.list": _of_branches("list", {"topic": "text", "deleted": "bool"}, topic="t"),
    "RemoteBranches.delete_branch": _of_branches(
        "delete_branch", dict.fromkeys(("topic", "branch", "message"), "text"), topic="t", branch="b"
    ),
    "RemoteBranches.undelete_branch": _of_branches(
        "undelete_branch", dict.fromkeys(("topic", "branch"), "text"), topic="t", branch="b"
    ),
    "RemoteBranches.rename_branch": _of_branches(
        "rename_branch", dict.fromkeys(("topic", "branch", "new"), "text"), topic="t", branch="b", new="c"
    ),
    "RemoteProducer.send": Row(_send, {"value": "bytes", **RECORD}, {"value": b"x"}, frozenset({"tag", "node"})),
}


@pytest.fixture
def client() -> Client:
    """A client without a daemon: a call that sends a request fails with another error."""
    return seglog.connect("unix:/nowhere", retries=Retries(total_s=0))


def test_every_call_has_a_row_for_every_argument() -> None:
    found = {name: arguments for name, arguments in calls_of(package, values=VALUES).items() if name != "connect"}
    assert {name: frozenset(row.takes) for name, row in ROWS.items()} == found


@pytest.mark.parametrize("name", ROWS)
def test_a_wrong_argument_is_refused_by_its_name(client: Client, name: str) -> None:
    assert refused(client, name, ROWS[name], Misuse) == []


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("total_s", -1),
        ("least_s", "1"),
        ("most_s", None),
        ("silence_s", 0),
        ("connect_s", -1),
    ],
)
def test_retries_have_numbers(name: str, given: object) -> None:
    with pytest.raises(InvalidArgument, match=name):
        Retries(**{name: given})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "given"), [("batch_bytes", 0), ("batch_records", 0), ("linger_s", -1)])
def test_a_batch_has_at_least_a_record(name: str, given: int) -> None:
    with pytest.raises(InvalidArgument, match=name):
        Batching(**{name: given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    ["", "localhost:7373", "ftp://host", "http://", "http://h:x", "http://h:99999", "http://u:p@h", "http://h?a=1",
     "http://h\n", "unix:", "https://h h"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="url"):
        seglog.connect(url)


@pytest.mark.parametrize("token", ["", "a b", "a\r\nHost: b", "ü"])
def test_a_token_that_no_header_carries_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(InvalidArgument, match="token") as refusal:
        seglog.connect("http://localhost", token=token)
    assert not token or token not in str(refusal.value)


@pytest.mark.parametrize("key", ["", " a", "k" * 257, "a\nb"])
def test_a_key_that_no_header_carries_is_refused(client: Client, key: str) -> None:
    with pytest.raises(InvalidArgument, match="key"):
        client.topic("t").append([b"x"], key=key)


def test_a_producer_and_a_key_exclude_each_other(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="key"):
        client.topic("t").append([b"x"], key="k", producer=ProducerBatch("p", 1, 0))


@pytest.mark.parametrize("name", [" p", "p\n", "\x7f", "", "p" * 257])
def test_a_producer_that_no_header_carries_is_refused_at_once(client: Client, name: str) -> None:
    with pytest.raises(InvalidArgument, match="id"):
        client.topic("t").producer(name, epoch=1)


@pytest.mark.parametrize(
    ("plain", "twin"),
    [
        (package.connect, aio.connect),
        (package.RemoteTopic, aio.AsyncRemoteTopic),
        (package.RemoteFollower, aio.AsyncRemoteFollower),
        (package.RemoteProducer, aio.AsyncRemoteProducer),
        (package.RemoteQueue, aio.AsyncRemoteQueue),
        (package.Client, aio.AsyncClient),
        (package.RemoteArchive, aio.AsyncRemoteArchive),
        (package.RemoteBranches, aio.AsyncRemoteBranches),
    ],
)
def test_the_calls_for_asyncio_take_the_same_arguments(plain: Any, twin: Any) -> None:
    def arguments(found: Any) -> dict[str, list[str]]:
        calls = {name: each for name, each in vars(found).items() if inspect.isfunction(each) and name[0] != "_"}
        calls = calls or {"": found}
        return {
            name: [
                str(each).replace("AsyncIterable[", "Iterable[") for each in inspect.signature(call).parameters.values()
            ]
            for name, call in calls.items()
        }

    assert arguments(plain) == arguments(twin)
