"""Hold the four carriers side by side: the log and the client of a daemon, each for threads and for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import catalog
import offload
import seglog
from seglog import aio
from seglog.client import Client, RemoteArchive, RemoteBranches, RemoteTopic
from seglog.client import aio as client_aio
from seglog.values import protocols
from seglog.writing.append import AppendOptions
from tests.arguments import signature_of
from tests.children import in_child
from tests.daemons import served
from tests.worlds.carriers import archive_history, deletes, deletes_in_loop, history, history_in_loop, refusals

CARRIERS = [
    (protocols.AnyTopic, seglog.Topic),
    (protocols.AnyTopic, RemoteTopic),
    (protocols.AnyAsyncTopic, aio.AsyncTopic),
    (protocols.AnyAsyncTopic, client_aio.AsyncRemoteTopic),
    (protocols.AnyLog, seglog.Log),
    (protocols.AnyLog, Client),
    (protocols.AnyAsyncLog, aio.AsyncLog),
    (protocols.AnyAsyncLog, client_aio.AsyncClient),
    (protocols.AnyArchive, offload.Archive),
    (protocols.AnyArchive, RemoteArchive),
    (protocols.AnyBranches, RemoteBranches),
]
#: By call, the argument that one kind of carrier has alone. Imports into a log give their records times, which a daemon
#: would have to trust. Only an offload in the process tells its progress.
OWN = {**dict.fromkeys(("append", "append_once", "append_stream"), "times_ms"), "offload": "on_bytes"}


def _members(kind: type) -> dict[str, Any]:
    """Return what a class has, with what it has from other classes of ours."""
    ours = [base for base in kind.__mro__ if base.__module__.partition(".")[0] in {"seglog", "offload"}]
    return {name: member for base in reversed(ours) for name, member in vars(base).items()}


def _calls(kind: type) -> dict[str, Any]:
    return {name: call for name, call in _members(kind).items() if name[0] != "_" and inspect.isfunction(call)}


def _parameters(call: Any) -> dict[str, tuple[object, ...]]:
    """Return the kind, the default and the type of each argument. A call that takes options has the names of them."""
    return {
        name: (each.kind, each.default, str(each.annotation).replace("AsyncIterable[", "Iterable["))
        for name, each in signature_of(call).parameters.items()
        if name != OWN.get(call.__name__)
    }


@pytest.mark.parametrize(("protocol", "carrier"), CARRIERS, ids=lambda kind: kind.__name__)
def test_each_call_of_a_protocol_has_the_same_arguments_in_each_carrier(protocol: type, carrier: type) -> None:
    asked = {name: _parameters(call) for name, call in _calls(protocol).items()}
    assert {name: _parameters(_members(carrier)[name]) for name in asked} == asked
    awaited = {name for name, call in _calls(protocol).items() if inspect.iscoroutinefunction(call)}
    calls = {name: inspect.unwrap(_members(carrier)[name]) for name in asked}
    assert {name for name, call in calls.items() if inspect.iscoroutinefunction(call)} == awaited


def test_the_protocols_for_asyncio_are_those_for_threads_awaited() -> None:
    for plain, twin in (
        (protocols.AnyTopic, protocols.AnyAsyncTopic),
        (protocols.AnyLog, protocols.AnyAsyncLog),
    ):
        assert {name: _parameters(call) for name, call in _calls(plain).items()} == {
            name: _parameters(call) for name, call in _calls(twin).items()
        }


def test_a_name_that_two_topics_have_is_one_of_the_protocol() -> None:
    shared = _calls(seglog.Topic).keys() & _calls(RemoteTopic).keys()
    assert shared == _calls(protocols.AnyTopic).keys()


def test_the_arguments_of_an_append_are_declared_once() -> None:
    assert list(AppendOptions._fields) == [*protocols.LogAppendArguments.__annotations__]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a daemon that offloads only what a call asks for. Each test takes another topic."""
    directory = tmp_path_factory.mktemp("served")
    seglog.open(directory).close()
    with served(directory, tmp_path_factory.mktemp("remote").as_uri(), SERVE_CHECK_INTERVAL_MS="3600000"):
        yield f"unix:{directory}"


def test_the_same_calls_have_the_same_results_in_each_carrier(tmp_path: Path, daemon: str) -> None:
    async def both(log: aio.AsyncLog, client: client_aio.AsyncClient) -> list[object]:
        async with log as opened, client as connected:
            return [await history_in_loop(opened, "looped"), await history_in_loop(connected, "looped")]

    with seglog.open(tmp_path / "log") as log:
        expected = history(log, "calls")
    with seglog.connect(daemon) as client:
        assert history(client, "calls") == expected
        here, there = asyncio.run(both(aio.open(tmp_path / "looped"), client_aio.connect(daemon)))
    assert here == ["looped", *expected[1:]]
    assert there == here


def test_an_archive_has_the_same_results_here_and_in_a_daemon(tmp_path: Path, daemon: str) -> None:
    with (
        seglog.open(tmp_path / "log") as log,
        offload.attach(log, (tmp_path / "remote").as_uri()) as archive,
    ):
        expected = archive_history(archive, log, "archived")
    with seglog.connect(daemon) as client:
        assert archive_history(client.archive, client, "archived") == expected


@pytest.mark.long
def test_a_delete_takes_the_same_records_in_each_carrier(tmp_path: Path, daemon: str) -> None:
    async def both(log: aio.AsyncLog, client: client_aio.AsyncClient) -> list[object]:
        async with log as opened, client as connected:
            return [await deletes_in_loop(opened), await deletes_in_loop(connected)]

    with seglog.open(tmp_path / "log") as log:
        expected = deletes(log)
    with seglog.open(tmp_path / "log") as log:
        assert "deletes-0" in log.topics()
    with seglog.connect(daemon) as client:
        assert deletes(client) == expected
        here, there = asyncio.run(both(aio.open(tmp_path / "looped"), client_aio.connect(daemon)))
    assert here == there == expected[:-1]


def test_a_refusal_is_the_same_class_with_the_same_fields_here_and_in_a_daemon(tmp_path: Path, daemon: str) -> None:
    with seglog.open(tmp_path / "log") as log, offload.attach(log, (tmp_path / "remote").as_uri()) as archive:
        expected = refusals(archive, log, "refused")
    assert [told for told in expected if not isinstance(told, tuple)] == []
    with seglog.connect(daemon) as client:
        assert refusals(client.archive, client, "refused") == expected


def test_a_store_that_fails_is_the_same_error_here_and_in_a_daemon(tmp_path: Path) -> None:
    def failures(archive: protocols.AnyArchive) -> list[object]:
        shutil.rmtree(place)
        told: list[object] = []
        for call in (lambda: archive.offload("t"), lambda: archive.restore("t", to="head", name="b")):
            with pytest.raises(catalog.errors.NoSuchBucket) as failed:
                call()
            told.append((str(failed.value), failed.value.hint, failed.value.exit_code, failed.value.fields()))
        return told

    place = tmp_path / "place"
    remote = (place / "remote").as_uri()
    found: list[object] = []
    for directory in (tmp_path / "here", tmp_path / "served"):
        place.mkdir()
        with seglog.open(directory) as log, offload.attach(log, remote) as archive:
            for value in (b"one", b"two"):
                log.topic("t").append([value])
                log.topic("t").seal()
                if value == b"one":
                    archive.offload("t")
            if directory.name == "here":
                found.append(failures(archive))
        if directory.name == "served":
            with (
                served(directory, remote, SERVE_CHECK_INTERVAL_MS="3600000"),
                seglog.connect(f"unix:{directory}") as client,
            ):
                found.append(failures(client.archive))
    assert found[0] == found[1]


def test_a_closed_carrier_refuses_each_call(tmp_path: Path) -> None:
    async def both() -> None:
        async with client_aio.connect(f"unix:{tmp_path}") as client:
            assert await client.topics() == ["t"]
        calls = [client.topics(), client.topic("t").append([b"x"]), anext(aiter(client.topic("t").read()))]
        for call in calls:
            with pytest.raises(seglog.LogClosed):
                await call

    with seglog.open(tmp_path) as log:
        log.topic("t").append([b"one"])
    with pytest.raises(seglog.LogClosed):
        log.topic("t").append([b"two"])
    with served(tmp_path, ""):
        with seglog.connect(f"unix:{tmp_path}") as client:
            assert client.topics() == ["t"]
        for call in (client.topics, lambda: client.topic("t").append([b"two"]), lambda: next(client.topic("t").read())):
            with pytest.raises(seglog.LogClosed):
                call()
        asyncio.run(both())
    with seglog.open(tmp_path) as log:
        assert log.topic("t").head_seq == 1


def test_an_unknown_option_is_a_type_error_in_each_carrier(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log, seglog.connect("unix:/nowhere") as client:
        topics: list[Any] = [log.topic("t"), client.topic("t")]
        for topic in topics:
            appends = [topic.append, topic.append_once, topic.append_stream]
            for call in (*appends, topic.read, topic.read_arrow, topic.follow, topic.delete):
                values, name = ([[b"x"]], "append") if call in appends else ([], call.__name__)
                with pytest.raises(TypeError, match=rf"^{name}.*\(\) .* 'colour'"):
                    call(*values, colour="red")
                if call in appends and topic is topics[1]:
                    with pytest.raises(TypeError, match=r"^append.*\(\) .* 'times_ms'"):
                        call(*values, times_ms=[7])


def test_repr_says_where_a_carrier_is_and_what_it_has(tmp_path: Path) -> None:
    directory, remote = tmp_path / "log", (tmp_path / "remote").as_uri()
    with seglog.open(directory) as log:
        topic = log.topic("orders")
        assert repr(topic) == f"<Topic orders of {directory}: no records>"
        assert repr(log) == f"<Log of {directory}: topics: 0>"
        topic.append([b"x"] * 3)
        assert repr(topic) == f"<Topic orders of {directory}: seq 1 to 3>"
        with offload.attach(log, remote) as archive:
            assert repr(archive) == f"<Archive of {directory}: topics: 1, remote {remote}>"
            assert repr(log) == f"<Log of {directory}: topics: 1, remote {remote}>"
        assert repr(archive) == f"<Archive of {directory}: closed, remote {remote}>"
    assert repr(log) == f"<Log of {directory}: closed>"
    assert repr(topic) == f"<Topic orders of {directory}: seq 1 to 3>"
    with seglog.open(directory, read_only=True) as view:
        assert repr(view) == f"<Log of {directory}: topics: 1, read-only>"
    with seglog.connect("http://localhost:7373") as client:
        assert repr(client) == "<Client of http://localhost:7373>"
        assert repr(client.topic("orders")) == "<RemoteTopic orders of http://localhost:7373>"
        assert repr(client.archive) == "<RemoteArchive of http://localhost:7373>"

    async def whole() -> None:
        log = aio.open(directory)
        assert repr(log) == f"<AsyncLog of {directory}: not open>"
        async with log:
            assert repr(log) == f"<AsyncLog of {directory}: topics: 1>"
            assert repr(log.topic("orders")) == f"<AsyncTopic orders of {directory}: seq 1 to 3>"

    asyncio.run(whole())


def test_repr_in_a_forked_child_is_no_error(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "log") as log, offload.attach(log, (tmp_path / "remote").as_uri()) as archive:
        for each in (log, log.topic("t"), archive):
            assert in_child(lambda each=each: repr(each)).startswith(f"<{type(each).__name__}")  # type: ignore[misc]


def test_a_topic_shows_the_names_that_a_program_uses() -> None:
    public = [name for name in dir(seglog.Topic) if not name.startswith("_")]
    assert set(public) == {
        *("append", "append_once", "append_stream", "bounds", "config", "delete", "earliest_seq"),
        *("enforce_retention", "epoch", "evict", "exists", "first_seq", "follow", "head_seq", "incarnation", "inner"),
        *("last_ts_ms", "name", "read", "read_arrays", "read_arrow", "read_batches", "seal", "seq_at", "truncate"),
        "undo",
    }


def test_the_errors_are_there_after_the_import() -> None:
    call = "import seglog; print(seglog.errors.NoSuchTopic is seglog.NoSuchTopic, 'errors' in dir(seglog))"
    assert subprocess.run([sys.executable, "-c", call], capture_output=True, check=True).stdout == b"True True\n"
