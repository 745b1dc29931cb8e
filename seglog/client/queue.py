"""Queues of a daemon: the requests and answers of both clients, without I/O, and the queue of the plain client.

1  A worker claims jobs. If the answer is lost, the client claims again, and the jobs of the lost answer come again when
   their leases are over.
2  It acks those that are done. If the answer is lost, the client acks again, and the daemon knows the lease.
3  A lease that is over raises `LeaseLost`, or stands in `Settled.lost` beside jobs that counted.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from seglog.base.arguments import WHOLE_MAX, Within, checked
from seglog.base.dataclasses import dataclass
from seglog.client.answers import problem_of, unfit
from seglog.client.bodies import item_of
from seglog.client.connections import Answer, Request
from seglog.errors import InvalidArgument
from seglog.values.record import Record

if TYPE_CHECKING:
    from seglog.client.driver import Driver

MOST_CLAIMED = 1_000
LONGEST_WAIT_S = 30


@dataclass(frozen=True, slots=True)
class Job:
    """A record that the worker has until `deadline_ms`, for the time `deliveries` says."""

    record: Record
    lease_id: str
    deliveries: int
    deadline_ms: int

    @property
    def seq(self) -> int:
        return self.record.seq

    @property
    def value(self) -> bytes:
        return self.record.value


@dataclass(frozen=True, slots=True)
class Settled:
    """The seqs for which a call counted, and those whose lease was over: drop these jobs, because they come again."""

    done: tuple[int, ...]
    lost: tuple[int, ...]


def claim_request(topic: str, queue: str, most: int, wait_s: float, worker: str | None) -> Request:
    body = {"max": most, "wait_s": wait_s, **({} if worker is None else {"worker": worker})}
    return _request(topic, queue, "claims", body)


def settle_request(topic: str, queue: str, path: str, jobs: tuple[Job, ...], **more: int) -> Request:
    """Return an ack, a nack or an extension of jobs. A repetition of an ack counts again, and changes nothing."""
    if not jobs:
        raise InvalidArgument("jobs", jobs, "at least one job")
    for job in jobs:
        if not isinstance(job, Job):
            raise InvalidArgument("jobs", job, "jobs that a claim gave")
    given = [{"seq": each.seq, "lease_id": each.lease_id} for each in jobs]
    return _request(topic, queue, path, {"jobs": given, **more})


def _request(topic: str, queue: str, path: str, body: dict[str, Any]) -> Request:
    place = f"/topics/{quote(topic, safe='')}/queues/{quote(queue, safe='')}/{path}"
    return Request("POST", place, {"Content-Type": "application/json"}, json.dumps(body).encode(), topic=topic)


def jobs_of(request: Request, answer: Answer) -> list[Job]:
    try:
        return [_job_of(fields) for fields in problem_of(answer.body)["jobs"]]
    except (KeyError, TypeError, ValueError) as error:
        raise unfit(request, answer) from error


def _job_of(fields: dict[str, Any]) -> Job:
    record = item_of(fields)
    assert isinstance(record, Record)  # noqa: S101 - no claim gives a gap
    return Job(record, str(fields["lease_id"]), int(fields["deliveries"]), int(fields["deadline_ms"]))


def settled_of(request: Request, answer: Answer) -> Settled:
    fields = problem_of(answer.body)
    try:
        return Settled(tuple(map(int, fields["done"])), tuple(map(int, fields["lost"])))
    except (KeyError, TypeError, ValueError) as error:
        raise unfit(request, answer) from error


class RemoteQueue:
    """A queue of a daemon, made by `Client.queue`. Safe for many threads.

    queue = client.queue("orders", "billing")
    while True:
        for job in queue.claim(10, wait_s=20):
            bill(job.value)
            queue.ack(job)
    """

    def __init__(self, driver: Driver, topic: str, name: str) -> None:
        self.topic = topic
        self.name = name
        self._driver = driver

    def __repr__(self) -> str:
        return f"<RemoteQueue {self.topic}/{self.name} of {self._driver.address}>"

    @checked
    def claim(
        self,
        most: Annotated[int, Within(1, MOST_CLAIMED)] = 1,
        *,
        wait_s: Annotated[float, Within(0, LONGEST_WAIT_S)] = 0,
        worker: str | None = None,
    ) -> list[Job]:
        """Claim jobs, and return them; none if there is none now.

            jobs = client.queue("orders", "billing").claim(10, wait_s=20)

        Args:
            most: So many jobs at most, up to 1,000.
            wait_s: Without a job, wait so long for the first, up to 30 s.
            worker: The name of this worker, which `seglog queue show` tells; None is its host.

        Raises:
            Missing: There is no such queue: `seglog queue create` makes it.
            DaemonError: The daemon refuses the request.
            SeglogError: As an append does, because the log keeps the lease.
        """
        request = claim_request(self.topic, self.name, most, wait_s, worker)
        return jobs_of(request, self._driver.ask(request))

    def ack(self, *jobs: Job) -> Settled:
        """Ack jobs that are done, and return when that is durable. They never come again.

            queue.ack(job)

        Returns:
            The seqs that counted, and those whose lease was over.

        Raises:
            LeaseLost: No job counted, because the lease of each was over.
            SeglogError: As `claim` does.
        """
        return self._settle("acks", jobs)

    @checked
    def nack(self, *jobs: Job, delay_ms: Annotated[int, Within(0, WHOLE_MAX)] = 0) -> Settled:
        """Give jobs back, so that they come again, after the delay. Return and raise as `ack` does."""
        return self._settle("nacks", jobs, delay_ms=delay_ms)

    def extend(self, *jobs: Job) -> Settled:
        """Let the leases of jobs begin anew, for work that takes longer. Return and raise as `ack` does."""
        return self._settle("extensions", jobs)

    def _settle(self, path: str, jobs: tuple[Job, ...], **more: int) -> Settled:
        request = settle_request(self.topic, self.name, path, jobs, **more)
        return settled_of(request, self._driver.ask(request))
