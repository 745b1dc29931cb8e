"""A store that accepts requests and never answers, and one that sends a byte now and then.

Each command of the command line, each task of the daemon and the stop of the daemon end within their limits, with an
error of ours and without a traceback. The store answers none of their requests before they have ended. So the end
itself shows the limit, and the number of requests shows that a command makes no second try after it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import offload
import seglog
from offload.cli.command_line import LOCAL
from offload.operations.command_list import COMMANDS
from tests.daemons import ServedDirectory, served
from tests.faults.front import Front, HttpFault
from tests.forge import forged
from tests.s3_server import may_be_checked
from tests.waiting import wait_until
from tests.work import tell

_HANGS_AFTER_S = 90  # only a hang explains it: the limit of each command is a second
_MOST_AT_ONCE = 16  # a command that waits for several answers asks for no more at once
_SILENT = {
    "never answers": HttpFault("timeout", lasts=True),
    "drips": HttpFault("drip", "after", lasts=True),
}
_ROLE = "arn:aws:iam::111122223333:role/tenants"
_LINE = re.compile(r"not answered|no answer|no definite answer")

ASKS = {
    "offload": "offload u",
    "compact": "compact t",
    "gc": "gc",
    "gc/plan": "gc plan",
    "gc/apply": "gc apply 1 --grace 0",
    "gc/explain": "gc explain refs/t/main",
    "cost": "cost",
    "sync and push": "sync u --push",
    "sync and fetch": "sync t --fetch",
    "sync": "sync t",
    "reset": "reset t",
    "takeover": "takeover t@back",
    "uploads": "uploads",
    "read": "read t --from 1 --limit 1",
    "tail": "tail t",
    "log": "log t",
    "show": "show t head",
    "diff": "diff t:head t@back",
    "points": "points t",
    "resolve": "resolve t --to head",
    "segments": "segments u",
    "export": "export t {tmp}/export",
    "restore": "restore t --to head~1 --as again",
    "copy": "copy t copied --at head~1",
    "oplog": "oplog",
    "undo": "undo",
    "undo and a delete": "undo u delete:1",
    "verify": "verify --remote",
    "upgrade": "upgrade --yes",
    "recover": "recover {url} {tmp}/new",
    "follow": "follow {url} {tmp}/standby --once",
    "doctor": "--remote {url} doctor",
    "init": "init --from {url}",
    "inspect": "inspect {url}/refs/t/main",
    "tenant/delete": "--remote {url} tenant delete acme --yes",
    "tenant/check": "--remote {url} tenant check acme",
    "tenant/credentials": f"tenant credentials acme --role reader --bucket bucket --role-arn {_ROLE}",
    "branch/create": "branch create t another",
    "branch/list": "branch list t",
    "branch/delete": "branch delete t back --yes",
    "branch/undelete": "branch undelete t gone",
    "branch/rename": "branch rename t back other",
    "branch/promote": "branch promote t back --keep former",
    "branch/diff": "branch diff t t@back",
    "tag/create": "tag create t v2",
    "tag/list": "tag list t",
    "tag/delete": "tag delete t v1",
    "pin/list": "pin list t",
    "pin/refresh": "pin refresh {pin} --for 2h",
    "pin/release": "pin release {pin}",
    "topic/delete": "topic delete t --detach --yes",
}
"""The commands that ask the store, in the directory of `world`."""

_SHOW_LOCAL_COPY = {"log", "show"}  # they say so, and show the commits that this directory knows
_EXEMPLARS = [("restore", "never answers"), ("gc", "drips")]


@pytest.fixture
def world(tmp_path: Path, s3_remote: str) -> Path:
    """A directory with topics that are offloaded (`t`) and not (`u`), names, and a deletion."""
    directory = tmp_path / "data"
    with seglog.open(directory) as log, offload.attach(log, s3_remote) as archive:
        for values in ([b"one", b"two"], [b"three"]):
            log.topic("t").append(values)
            log.topic("t").seal()
            archive.offload("t", drop_hot=True)
        archive.delete("t", before=2)
        archive.offload("t")
        archive.restore("t", to="head~1", name="back")
        archive.restore("t", to="head~1", name="gone")
        archive.branches.delete_branch("t", "gone")
        archive.tags.tag("t", "v1")
        log.topic("u").append([b"not offloaded"])
        archive.delete("u", seqs=[1])
        log.topic("u").seal()
    (directory / "seglog.toml").write_text(f'[remote]\nurl = "{s3_remote}"\n')
    return directory


def test_the_list_of_commands_that_ask_the_store_is_whole() -> None:
    local = {
        *("append", "delete", "evict", "truncate", "seal", "pause", "resume", "retry", "status", "bisect"),
        *("cursor/create", "cursor/list", "cursor/reset", "cursor/delete"),
        *("queue/create", "queue/list", "queue/show", "queue/set", "queue/redrive", "queue/delete"),
        *("router/create", "router/list", "router/delete", "router/pause", "router/resume"),
        *("token/new", "tenant/list", "tenant/policy", "tenant/bucket-policy"),
        *("topic/create", "topic/set", "topic/show", "topic/list", "completion", "demo", "help", "version", "serve"),
    }
    asks = {path.partition(" and ")[0] for path in ASKS}
    assert asks | local == {*COMMANDS}
    assert not asks & local
    assert {*LOCAL} - {"demo", "serve"} <= asks


def _ended(front: Front, url: str, place: Path, path: str, way: str) -> str:
    """Run a command beside a silent store. Check its end, and return how many requests it made."""
    words = ASKS[path].format(url=url, tmp=place, pin="t/none").split()
    before = len(front.struck)
    front.plan = (_SILENT[way],)
    variables = {**os.environ, "AWS_ENDPOINT_URL": front.url, "AWS_ENDPOINT_URL_STS": front.url}
    process = forged(["-C", str(place / "data"), "--store-timeout", "1", *words], variables)
    said: list[str] = []
    with ThreadPoolExecutor(1) as reader:
        reading = reader.submit(lambda: said.extend(process.stderr))
        try:
            code = process.wait(_HANGS_AFTER_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{path} does not end beside a store that {way}") from None
        finally:
            reading.result()
            process.stderr.close()
            front.plan = ()
    asked, text = len(front.struck) - before, "".join(said)
    told = f"{path} beside a store that {way}: code {code}, {asked} requests, {text!r}"
    assert asked, told
    assert asked <= _MOST_AT_ONCE, told
    assert code == (0 if path in _SHOW_LOCAL_COPY else 1), told
    assert "Traceback" not in text, told
    assert _LINE.search(text) or path == "tenant/check", told  # that one prints its reason as a result
    return f"{path} {asked}"


@pytest.mark.parametrize(("path", "way"), _EXEMPLARS)
def test_a_command_ends_beside_a_silent_store(
    world: Path, s3_remote: str, s3_endpoint: str, tmp_path: Path, path: str, way: str
) -> None:
    with Front(s3_endpoint) as front:
        tell(f"requests to a store that {way}, a command: {_ended(front, s3_remote, tmp_path, path, way)}")


@pytest.mark.soak(part=3)
@pytest.mark.parametrize("way", _SILENT)
def test_each_command_ends_beside_a_silent_store(
    world: Path, s3_remote: str, s3_endpoint: str, tmp_path: Path, way: str
) -> None:
    found, failed = [], []
    may_be_checked(s3_endpoint, s3_remote.split("/")[2])
    with Front(s3_endpoint) as front:
        for path in ASKS:
            place = tmp_path / path.replace("/", "-")
            place.mkdir()
            if path != "init":
                shutil.copytree(world, place / "data", symlinks=True)
            try:
                found.append(_ended(front, s3_remote, place, path, way))
            except AssertionError as error:
                failed.append(str(error).partition("\nassert")[0])
    assert not failed, "\n".join(failed)
    tell(f"{len(found)} commands beside a store that {way}, with their requests: {', '.join(found)}")


@pytest.mark.parametrize("way", ["never answers", pytest.param("drips", marks=pytest.mark.soak(part=3))])
def test_the_stop_of_a_daemon_waits_for_no_silent_store(
    world: Path, s3_remote: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A read, a command and offloads wait when SIGTERM comes, and more offloads are queued than run at once."""
    with seglog.open(world) as log:
        for number in range(6):
            log.topic(f"q{number}").append([b"queued"])
            log.topic(f"q{number}").seal()
    with Front(s3_endpoint, [_SILENT[way]]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        given = {"SERVE_STOP_TIMEOUT_S": "1", "OFFLOAD_OFFLOAD_AFTER_S": "0", "OFFLOAD_WORKER": "thread"}
        with served(world, s3_remote, **given) as daemon, ThreadPoolExecutor(2) as clients:
            json = {"content-type": "application/json"}
            read = clients.submit(daemon.ask, "GET", "/topics/t/records?from=2&limit=1")
            command = clients.submit(daemon.ask, "POST", "/rpc/oplog", b"{}", json)
            wait_until(lambda: len(front.struck) >= 4)  # two offloads at once, the read, the command
            daemon.terminate()
            before = len(front.struck)
            assert daemon.process.wait(_HANGS_AFTER_S) == 0
            assert [each.result()[0] for each in (read, command)] == [503, 503]
            assert "Traceback" not in "".join(daemon.lines)
            assert len(front.struck) == before
        tell(f"requests to a store that {way} when a daemon stopped, and after: {before}, {len(front.struck) - before}")
    with seglog.open(world) as log:
        assert [log.topic(f"q{number}").head_seq for number in range(6)] == [1] * 6


_NEVER = {
    "COLD_STORE_TIMEOUT_S": "1",
    "OFFLOAD_RETRY_MAX_S": "1",
    "OFFLOAD_OFFLOAD_AFTER_S": "never",
    "OFFLOAD_DELETION_LAG_S": "86400",
    "CATALOG_GC_INTERVAL_S": "never",
    "CATALOG_SYNC_INTERVAL_S": "never",
    "CATALOG_ERASE_INTERVAL_S": "never",
}
"""Settings of a daemon whose background asks the store for nothing."""

TASKS = {
    "offload": ({"OFFLOAD_OFFLOAD_AFTER_S": "0"}, "offload_runs_total{outcome"),
    "release": ({"OFFLOAD_DELETION_LAG_S": "0"}, "background_failures_total{task"),
    "gc": ({"CATALOG_GC_INTERVAL_S": "1"}, "background_failures_total{task"),
    "sync": ({"CATALOG_SYNC_INTERVAL_S": "1"}, "background_failures_total{task"),
    "erase": ({"CATALOG_ERASE_INTERVAL_S": "1"}, "background_failures_total{task"),
}
"""The tasks that ask the store: the settings that let each run in `busy`, and the metric of those that failed."""


@pytest.fixture
def busy(world: Path, s3_remote: str, tmp_path: Path) -> Path:
    """A directory with work for each task: `u` to offload, `h` to release, `r` to follow, records of `t` to erase."""
    with seglog.open(tmp_path / "other") as log, offload.attach(log, s3_remote) as archive:
        log.topic("r").append([b"of another directory"])
        log.topic("r").seal()
        archive.offload("r")
    with seglog.open(world) as log, offload.attach(log, s3_remote) as archive:
        archive.replication.sync("r")
        log.topic("h").append([b"hot"])
        log.topic("h").seal()
        archive.offload("h")
    return world


def _failures(daemon: ServedDirectory, task: str) -> int:
    """Return how often a task has ended with an error. The daemon answers, and takes appends."""
    seq = daemon.append("hot", b"x")
    assert daemon.ask("GET", f"/topics/hot/records/{seq}")[0] == 200
    assert daemon.ask("GET", "/healthz")[0] == 200
    value = "failed" if task == "offload" else task
    status, text, _ = daemon.ask("GET", "/metrics")
    assert status == 200
    found = re.search(rf'^seglog_{re.escape(TASKS[task][1])}="{value}"}} (\d+)', text.decode(), re.MULTILINE)
    return int(found[1]) if found else 0


def _tasks_end(busy: Path, s3_remote: str, front: Front, tasks: Sequence[str]) -> str:
    """Let tasks run beside a silent store until each has ended with an error twice. Return the number of requests."""
    given = dict(_NEVER)
    for task in tasks:
        given |= TASKS[task][0]
    with served(busy, s3_remote, SERVE_STOP_TIMEOUT_S="1", OFFLOAD_WORKER="thread", **given) as daemon:
        for task in tasks:
            wait_until(lambda task=task: _failures(daemon, task) >= 2, pause_s=0.01)
        asked = len(front.struck)
        ended = sum(_failures(daemon, task) for task in tasks)
        told = f"{', '.join(tasks)}: {asked} requests, {ended} ends with an error"
        assert ended <= asked <= (ended + len(tasks)) * _MOST_AT_ONCE, told
        daemon.terminate()
        before = len(front.struck)
        assert daemon.process.wait(_HANGS_AFTER_S) == 0
        assert len(front.struck) == before
        assert "Traceback" not in "".join(daemon.lines)
    return told


@pytest.mark.long
def test_the_background_of_a_daemon_goes_on_beside_a_silent_store(
    busy: Path, s3_remote: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task ends within its limit and begins again, and appends, reads and probes are answered meanwhile."""
    with Front(s3_endpoint, [_SILENT["never answers"]]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        tell(f"tasks beside a store that never answers: {_tasks_end(busy, s3_remote, front, [*TASKS])}")


@pytest.mark.soak(part=3)
@pytest.mark.parametrize("way", _SILENT)
@pytest.mark.parametrize("task", TASKS)
def test_each_task_ends_alone_beside_a_silent_store(
    busy: Path, s3_remote: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, task: str, way: str
) -> None:
    with Front(s3_endpoint, [_SILENT[way]]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        tell(f"a task beside a store that {way}: {_tasks_end(busy, s3_remote, front, [task])}")


@pytest.mark.soak(part=3)
@pytest.mark.parametrize("way", _SILENT)
def test_a_merge_ends_whose_reads_get_no_answer(
    world: Path, s3_remote: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The offload before it has its answers, and stays."""
    with Front(s3_endpoint, [replace(_SILENT[way], kind="GET data")]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        given = {**_NEVER, "OFFLOAD_TAIL_INTERVAL_S": "1", "OFFLOAD_MERGE_COUNT": "2", "OFFLOAD_WORKER": "thread"}
        with served(world, s3_remote, SERVE_STOP_TIMEOUT_S="1", **given) as daemon:
            daemon.append("t", b"four")
            wait_until(lambda: _failures(daemon, "offload") >= 1, pause_s=0.01)
            assert 1 <= len(front.struck) <= _MOST_AT_ONCE
            assert daemon.status("t")["offloaded_seq"] == 4
            daemon.terminate()
            assert daemon.process.wait(_HANGS_AFTER_S) == 0
            assert "Traceback" not in "".join(daemon.lines)


@pytest.mark.soak(part=3)
@pytest.mark.parametrize("way", _SILENT)
def test_the_end_of_streams_goes_on_beside_a_silent_store(
    world: Path, s3_remote: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The branches of forks wait for the store. A stream without one is gone."""
    text = {"Content-Type": "text/plain"}
    with served(world, s3_remote, **_NEVER) as daemon:
        assert daemon.ask("PUT", "/streams/source", b"x", text)[0] == 201
        for name in ("a", "b"):
            fork = {**text, "Stream-Forked-From": "/streams/source", "Stream-TTL": "1"}
            assert daemon.ask("PUT", f"/streams/{name}", b"", fork)[0] == 201
        assert daemon.ask("PUT", "/streams/plain", b"x", {**text, "Stream-TTL": "1"})[0] == 201
    with Front(s3_endpoint, [_SILENT[way]]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        with served(world, s3_remote, SERVE_STOP_TIMEOUT_S="1", **_NEVER) as daemon:
            for name in ("a", "b"):
                wait = f"the deletion of stream {name} waits"
                wait_until(lambda wait=wait: any(wait in line for line in daemon.lines), pause_s=0.01)
            wait_until(lambda: daemon.get("/topics/plain/index_bounds")[0].get("status") == 404, pause_s=0.01)
            assert daemon.append("hot", b"x") == 1
            assert 2 <= len(front.struck) <= 2 * _MOST_AT_ONCE
            daemon.terminate()
            assert daemon.process.wait(_HANGS_AFTER_S) == 0
            assert "Traceback" not in "".join(daemon.lines)


def test_segments_are_sealed_by_age_while_a_release_waits_for_the_store(
    busy: Path, s3_remote: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Front(s3_endpoint, [_SILENT["never answers"]]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        given = {**_NEVER, **TASKS["release"][0], "COLD_STORE_TIMEOUT_S": "3600", "LOG_SEGMENT_MAX_AGE_MS": "1"}
        with served(busy, s3_remote, SERVE_STOP_TIMEOUT_S="1", **given) as daemon:
            wait_until(lambda: front.struck)
            daemon.append("fresh", b"x")
            waits = re.compile(rb'^seglog_offload_lag_bytes{topic="fresh"} [1-9]', re.MULTILINE)  # in sealed segments
            wait_until(lambda: waits.search(daemon.ask("GET", "/metrics")[1]))
            assert len(front.struck) == 1, "the release still waits"
