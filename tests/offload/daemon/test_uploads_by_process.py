"""Test that the daemon uploads by a separate process, and counts, limits and stops it like its own work."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from offload.daemon.service import Service
from tests.worlds.services import serving, until

_NOW = {"OFFLOAD_OFFLOAD_AFTER_S": "0", "OFFLOAD_CODEC": "none"}


def children() -> list[int]:
    """Return the ids of the child processes of this process."""
    return [int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]


async def append_and_seal(service: Service, *values: bytes) -> None:
    await service.log.topic("t").append(list(values))
    service.sync.topic("t").seal()


async def until_offloaded(service: Service, seq: int) -> None:
    archive = service.archive
    assert archive is not None
    await until(lambda: archive.status.offloaded_seq("t") == seq, f"offload up to {seq}")


def count(service: Service, name: str) -> float:
    lines = service.metrics.text().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_what_the_process_sends_is_counted_and_it_is_kept_for_the_next_run(tmp_path: Path) -> None:
    async def run() -> None:
        before = set(children())
        async with serving(tmp_path / "d", (tmp_path / "remote").as_uri(), **_NOW) as service:
            await append_and_seal(service, bytes(100_000), b"two")
            await until_offloaded(service, 2)
            [worker] = set(children()) - before
            # The worker process puts the data and index objects. The daemon puts commits and names.
            assert count(service, 'seglog_store_requests_total{operation="put",outcome="ok"}') == 2
            assert count(service, "seglog_store_sent_bytes_total") > 100_000
            assert count(service, 'seglog_store_request_seconds_count{operation="put"}') == 2
            assert count(service, "seglog_offload_bytes_total") > 100_000
            await append_and_seal(service, b"three")
            await until_offloaded(service, 3)
            assert set(children()) - before == {worker}
            assert [record.value for record in service.sync.topic("t").read()][1:] == [b"two", b"three"]
        assert set(children()) == before

    asyncio.run(run())


def test_a_thread_uploads_where_the_setting_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        before = set(children())
        variables = {**_NOW, "OFFLOAD_WORKER": "thread"}
        async with serving(tmp_path / "d", (tmp_path / "remote").as_uri(), **variables) as service:
            await append_and_seal(service, b"one")
            await until_offloaded(service, 1)
            assert set(children()) == before
            assert count(service, 'seglog_store_requests_total{operation="put",outcome="ok"}') == 2

    asyncio.run(run())


@pytest.mark.long
def test_a_process_that_is_killed_is_a_failed_try_and_the_next_one_completes(tmp_path: Path) -> None:
    async def run() -> None:
        before = set(children())
        # The limit is four requests a second, so the worker process waits for its turn.
        async with serving(
            tmp_path / "d", (tmp_path / "remote").as_uri(), **_NOW, OFFLOAD_REQUESTS_PER_S="4"
        ) as service:
            await append_and_seal(service, b"one")
            await until(lambda: bool(set(children()) - before), "the process")
            for pid in set(children()) - before:
                os.kill(pid, 9)
            await until(lambda: service.works.of("t").failures == 1, "the failure")
            assert "killed by signal 9" in str(service.works.of("t").last_error)
            await until_offloaded(service, 1)
            await until(lambda: service.works.of("t").failures == 0, "the end of that try")

    asyncio.run(run())


@pytest.mark.long
def test_a_daemon_that_stops_leaves_no_process_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async def run() -> None:
        before = set(children())
        remote = (tmp_path / "remote").as_uri()
        async with serving(tmp_path / "d", remote, **_NOW, OFFLOAD_REQUESTS_PER_S="4") as service:
            await append_and_seal(service, b"one")
            await until(lambda: bool(set(children()) - before), "the process")
        assert set(children()) == before
        assert service.works.of("t").failures == 0
        async with serving(tmp_path / "d", remote, **_NOW) as service:
            await until_offloaded(service, 1)
            assert service.archive is not None
            assert service.archive.status.topic("t").unfinished_attempts == 0

    asyncio.run(run())
