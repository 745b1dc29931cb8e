"""A service with ten orders and the queue `billing`, and what a worker does with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from offload.daemon.queues import Job
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from offload.operations.queue import create, show
from tests.worlds.clock import HandClock
from tests.worlds.services import directory_of, serving


async def command(service: Service, work: Any, *given: Any, **named: Any) -> Any:
    """Run a command in a thread, as the daemon does."""
    return await in_threads(service.commands, lambda: work(directory_of(service), *given, **named))


@asynccontextmanager
async def world(
    place: Path, remote: str = "", *, records: int = 10, clock: HandClock | None = None, **options: Any
) -> AsyncIterator[Service]:
    """Serve a directory with ten orders and the queue `billing`."""
    async with serving(place / "d", remote, clock) as service:
        if records:
            await service.log.topic("orders").append([b"%d" % seq for seq in range(1, records + 1)], tag="eu")
        else:
            service.sync.create_topic("orders")
        await command(service, create, "orders", "billing", **options)
        yield service


async def claim(service: Service, most: int = 1, wait_s: float = 0.0, client: str = "ada") -> list[Job]:
    return await service.queues.claim("orders", "billing", most, wait_s, client)


def ids(*jobs: Job) -> list[tuple[int, int]]:
    return [(job.record.seq, job.lease_id) for job in jobs]


def seqs(jobs: list[Job]) -> list[int]:
    return [job.record.seq for job in jobs]


async def ack(service: Service, *jobs: Job) -> Any:
    return await service.queues.ack("orders", "billing", ids(*jobs))


async def nack(service: Service, *jobs: Job, delay_ms: int = 0) -> Any:
    return await service.queues.nack("orders", "billing", ids(*jobs), delay_ms)


async def shown(service: Service) -> Any:
    return await command(service, show, "orders", "billing")
