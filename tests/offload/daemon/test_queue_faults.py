"""Test what queues do when something goes wrong in the midst of a call: no job is lost, and none comes twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from seglog.delivery.queue_states import QueueStates
from tests.offload.daemon.test_queues import claim, nack, seqs, shown, world
from tests.seams.delivery import hold_reads


def queue_of(service: Any) -> Any:
    return QueueStates.of(service.sync).find("orders", "billing")


@pytest.mark.parametrize("comes_again", [False, True])
def test_a_client_that_leaves_while_its_jobs_are_read_loses_none(tmp_path: Path, *, comes_again: bool) -> None:
    async def run() -> None:
        async with world(tmp_path, records=6) as service:
            service.sync.topic("orders").delete(seqs=[4])
            if comes_again:
                await nack(service, *await claim(service, 3))
            gate = asyncio.Event()
            hold_reads(service.queues, gate)
            leaves, stays = asyncio.create_task(claim(service, 5)), asyncio.create_task(claim(service, 1))
            await asyncio.sleep(0.1)
            leaves.cancel()
            gate.set()
            assert seqs(await stays) == [1]
            assert (await shown(service)).listed.reason is None
            assert seqs(await claim(service, 9)) == [2, 3, 5, 6]

    asyncio.run(run())


def test_a_claim_that_fails_behind_its_read_loses_no_job(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=3) as service:
            await nack(service, *await claim(service, 3))
            gate, states = asyncio.Event(), QueueStates.of(service.sync)
            hold_reads(service.queues, gate)
            fails, begin = asyncio.create_task(claim(service, 3)), states.begin
            await asyncio.sleep(0.1)

            def refuse(*_: str) -> Any:
                raise OSError("the disk is away")

            states.begin = refuse  # type: ignore[method-assign]
            gate.set()
            with pytest.raises(OSError, match="away"):
                await fails
            states.begin = begin  # type: ignore[method-assign]
            assert seqs(await claim(service, 9)) == [1, 2, 3]

    asyncio.run(run())
