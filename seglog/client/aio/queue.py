"""The queue of the client for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from seglog.base.arguments import WHOLE_MAX, Within, checked
from seglog.client.queue import (
    LONGEST_WAIT_S,
    MOST_CLAIMED,
    Job,
    Settled,
    claim_request,
    jobs_of,
    settle_request,
    settled_of,
)

if TYPE_CHECKING:
    from seglog.client.aio.driver import AsyncDriver


class AsyncRemoteQueue:
    """A queue of a daemon, made by `AsyncClient.queue`. Its calls are those of `seglog.client.RemoteQueue`."""

    def __init__(self, driver: AsyncDriver, topic: str, name: str) -> None:
        self.topic = topic
        self.name = name
        self._driver = driver

    def __repr__(self) -> str:
        return f"<AsyncRemoteQueue {self.topic}/{self.name} of {self._driver.address}>"

    @checked
    async def claim(
        self,
        most: Annotated[int, Within(1, MOST_CLAIMED)] = 1,
        *,
        wait_s: Annotated[float, Within(0, LONGEST_WAIT_S)] = 0,
        worker: str | None = None,
    ) -> list[Job]:
        """Claim jobs, and return them; none if there is none now."""
        request = claim_request(self.topic, self.name, most, wait_s, worker)
        return jobs_of(request, await self._driver.ask(request))

    async def ack(self, *jobs: Job) -> Settled:
        """Ack jobs that are done, and return when that is durable."""
        return await self._settle("acks", jobs)

    @checked
    async def nack(self, *jobs: Job, delay_ms: Annotated[int, Within(0, WHOLE_MAX)] = 0) -> Settled:
        """Give jobs back, so that they come again, after the delay."""
        return await self._settle("nacks", jobs, delay_ms=delay_ms)

    async def extend(self, *jobs: Job) -> Settled:
        """Let the leases of jobs begin anew."""
        return await self._settle("extensions", jobs)

    async def _settle(self, path: str, jobs: tuple[Job, ...], **more: int) -> Settled:
        request = settle_request(self.topic, self.name, path, jobs, **more)
        return settled_of(request, await self._driver.ask(request))
