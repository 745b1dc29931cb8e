"""The routes of queues (offload.daemon.queues): claims, acks, nacks, extensions, and a stream of jobs.

    POST /topics/orders/queues/billing/claims       {"max": 10, "wait_s": 20, "worker": "ada"}
    POST /topics/orders/queues/billing/acks         {"jobs": [{"seq": 7, "lease_id": "00c3f2a9d1e05b7f"}]}
    POST /topics/orders/queues/billing/nacks        the same, with "delay_ms"
    POST /topics/orders/queues/billing/extensions   the same as acks
    GET  /topics/orders/queues/billing/work?max=10  jobs as events, up to 10 at a time

    event  data                                id
    job    the job, as a claim gives it        none
    end    {"reason": "stopping"}, or "error"  none
           with the problem in "error"

WORK-1  A stream of work holds at most `max` jobs that are not settled. When its client leaves, the daemon takes them
    back at once.

The commands `queue create`, `set`, `delete` and others are at `/rpc/queue/...`.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from offload.daemon.http import operations as api
from offload.daemon.http.answers import begun
from offload.daemon.http.events import KEEP_ALIVE
from offload.daemon.http.followers import end_event
from offload.daemon.http.parameters import json_of, query_of, whole
from offload.daemon.problems import line_of
from offload.daemon.queues import Job, Settled
from offload.daemon.request_places import become_follower
from offload.daemon.service import Service
from offload.daemon.waits import CLIENT_GONE, unless_gone
from offload.errors import InvalidOption, Stopping
from offload.operations.record_text import to_json
from offload.token_rights import Role
from seglog import LogClosed
from seglog.base.arguments import WHOLE_MAX

_MOST_CLAIMED = 1_000
_MOST_SETTLED = 10_000
_LONGEST_WAIT_S = 30
_LONGEST_DELAY_MS = 7 * 24 * 3600 * 1000
_WORKER_MAX = 128
_ALIVE_S = 15.0
_LEASE = re.compile(r"[0-9a-f]{16}")
_WHOLE = {"type": "integer", "minimum": 1, "maximum": WHOLE_MAX}
_QUEUE = {
    "name": "queue", "in": "path", "required": True, "description": "The queue.",
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"}, "example": "billing",
}  # fmt: skip
_PLACES = (api.TOPIC, _QUEUE)
_JOB_EXAMPLE = {"seq": 7, "lease_id": "00c3f2a9d1e05b7f"}
_GIVEN = {
    "job": {**api.object_of(seq=_WHOLE, lease_id={"type": "string", "pattern": "^[0-9a-f]{16}$"}),
            "additionalProperties": False},
}  # fmt: skip
_GIVEN_JOBS = {"type": "array", "items": api.ref("job"), "minItems": 1, "maxItems": _MOST_SETTLED}
_SEQS = {"type": "array", "items": _WHOLE}
_SETTLED = {"settled": api.object_of("deadline_ms", done=_SEQS, lost=_SEQS, deadline_ms=_WHOLE)}
_CLAIM = {
    "claim": {
        **api.object_of(
            "max", "wait_s", "worker",
            max={"type": "integer", "minimum": 1, "maximum": _MOST_CLAIMED, "default": 1},
            wait_s={"type": "number", "minimum": 0, "maximum": _LONGEST_WAIT_S, "default": 0},
            worker={"type": "string", "maxLength": _WORKER_MAX},
        ),
        "additionalProperties": False,
    },
    "claimed": api.object_of(jobs={"type": "array", "items": api.ref("claimed_job")}),
    "claimed_job": api.object_of(
        "tag", "node", "unterminated", "value", "value_base64",
        seq=_WHOLE, ts_ms=int, tag=str, node=str, unterminated=bool, value=str, value_base64=str,
        lease_id=str, deliveries=_WHOLE, deadline_ms=_WHOLE,
    ),
}  # fmt: skip
_CLAIMED_JOB = {"seq": 7, "ts_ms": 1785000000000, "value": "book", "deliveries": 1, "deadline_ms": 1785000030000}


def _body(schema: str, example: Mapping[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": api.ref(schema), "example": example}}
    return {"required": schema != "claim", "content": content}


CLAIMS = api.Operation(
    "POST", "/topics/{topic}/queues/{queue}/claims", "claimJobs", Role.APPEND, "records",
    "Claim jobs of a queue. Without one, wait for the first.",
    {200: ("The jobs.", api.json_answer("claimed", {"jobs": [{**_CLAIMED_JOB, **_JOB_EXAMPLE}]}))},
    errors=(404, 409, 415, 507), parameters=_PLACES, body=_body("claim", {"max": 10, "wait_s": 20, "worker": "ada"}),
    schemas=_CLAIM,
)  # fmt: skip


def _settles(path: str, name: str, summary: str, given: str, schemas: Mapping[str, Any]) -> api.Operation:
    example = {"jobs": [_JOB_EXAMPLE]}
    return api.Operation(
        "POST", f"/topics/{{topic}}/queues/{{queue}}/{path}", name, Role.APPEND, "records", summary,
        {200: ("The seqs for which it counted, and those whose lease was over.",
               api.json_answer("settled", {"done": [7], "lost": []}))},
        errors=(404, 409, 415, 507), parameters=_PLACES, body=_body(given, example), schemas=schemas,
    )  # fmt: skip


_JOBS = {"jobs": {**api.object_of(jobs=_GIVEN_JOBS), "additionalProperties": False}}
_DELAY = {"type": "integer", "minimum": 0, "maximum": _LONGEST_DELAY_MS, "default": 0}
_DELAYED = api.object_of("delay_ms", jobs=_GIVEN_JOBS, delay_ms=_DELAY)
ACKS = _settles(
    "acks", "ackJobs", "Ack jobs that are done. The answer comes when that is durable.", "jobs",
    {**_GIVEN, **_JOBS, **_SETTLED},
)  # fmt: skip
NACKS = _settles(
    "nacks", "nackJobs", "Give jobs back, so that they come again, after a delay.", "delayed_jobs",
    {"delayed_jobs": {**_DELAYED, "additionalProperties": False}},
)  # fmt: skip
EXTENSIONS = _settles("extensions", "extendLeases", "Let the leases of jobs begin anew.", "jobs", {})
_WORK_PARAMETERS = (
    api.in_query("max", "integer", "So many jobs at a time that are not settled: 1 to 1000."),
    api.in_query("worker", "string", "The name of the worker, which `queue show` tells."),
)
_WORK_NAMES = api.names_of(_WORK_PARAMETERS)
_WORK_EXAMPLE = f"event: job\ndata: {json.dumps({**_CLAIMED_JOB, **_JOB_EXAMPLE})}\n\n"
WORK = api.Operation(
    "GET", "/topics/{topic}/queues/{queue}/work", "streamJobs", Role.APPEND, "records",
    "Jobs of a queue as server-sent events. A client that leaves gives its jobs back.",
    {200: ("The events, as they come.", {"text/event-stream": {"schema": api.TEXT, "example": _WORK_EXAMPLE}})},
    errors=(404, 409, 507), parameters=(*_PLACES, *_WORK_PARAMETERS),
)  # fmt: skip
QUEUE_OPERATIONS = (CLAIMS, ACKS, NACKS, EXTENSIONS, WORK)


def queue_routes(service: Service) -> list[api.RoledRoute]:
    queues = _Queues(service)
    return [
        CLAIMS.route(queues.claim),
        ACKS.route(queues.ack),
        NACKS.route(queues.nack),
        EXTENSIONS.route(queues.extend),
        WORK.route(queues.work),
    ]


class _Queues:
    def __init__(self, service: Service) -> None:
        self._queues = service.queues
        self._now_ms = service.now_ms

    async def claim(self, request: Request) -> Response:
        query_of(request)
        given = await json_of(request, 'send an object, such as {"max": 10, "wait_s": 20}')
        _check_keys(given, {"max", "wait_s", "worker"})
        most, wait_s = _whole("max", given.get("max", 1), 1, _MOST_CLAIMED), given.get("wait_s", 0)
        if type(wait_s) not in (int, float) or not 0 <= wait_s <= _LONGEST_WAIT_S:
            raise InvalidOption("wait_s", f"must be a number of seconds from 0 to {_LONGEST_WAIT_S}")
        worker = _worker(request, given.get("worker"))
        topic, name = _place(request)
        jobs = await self._queues.claim(topic, name, most, 0, worker)
        if wait_s and not jobs:
            become_follower(request.scope)
            waited = await unless_gone(request, lambda: self._queues.claim(topic, name, most, wait_s, worker))
            if waited is None:
                return Response(status_code=CLIENT_GONE)
            jobs = waited
        body = b'{"jobs": [%b]}' % ", ".join(map(_job_text, jobs)).encode()
        return Response(body, media_type="application/json")

    async def ack(self, request: Request) -> Response:
        jobs, _ = await _jobs_of(request)
        return _settled(await self._queues.ack(*_place(request), jobs))

    async def nack(self, request: Request) -> Response:
        jobs, given = await _jobs_of(request, "delay_ms")
        delay_ms = _whole("delay_ms", given.get("delay_ms", 0), 0, _LONGEST_DELAY_MS)
        return _settled(await self._queues.nack(*_place(request), jobs, delay_ms))

    async def extend(self, request: Request) -> Response:
        jobs, _ = await _jobs_of(request)
        settled = await self._queues.extend(*_place(request), jobs)
        return _settled(settled, deadline_ms=settled.deadline_ms)

    async def work(self, request: Request) -> Response:
        query = query_of(request, _WORK_NAMES)
        most = _whole("max", whole(query, "max") if "max" in query else 1, 1, _MOST_CLAIMED)
        worker = _worker(request, query.get("worker"))
        become_follower(request.scope)
        answer = await begun(request, self._events(*_place(request), most, worker), "text/event-stream")
        answer.headers["cache-control"] = "no-store"
        return answer

    async def _events(self, topic: str, name: str, most: int, worker: str) -> AsyncGenerator[bytes]:
        mine = dict[int, int]()
        has_begun = False
        try:
            queue = await self._queues.changed(topic, name, 0)  # raises what decides the status of the answer
            has_begun = True
            yield KEEP_ALIVE
            while True:
                if len(mine) < most:
                    jobs = await self._queues.claim(topic, name, most - len(mine), _ALIVE_S, worker)
                    mine |= {job.record.seq: job.lease_id for job in jobs}
                    yield "".join(f"event: job\ndata: {_job_text(job)}\n\n" for job in jobs).encode() or KEEP_ALIVE
                queue = await self._queues.changed(topic, name, _ALIVE_S if len(mine) >= most else 0)
                mine = {seq: lease_id for seq, lease_id in mine.items() if queue.holds(seq, lease_id, self._now_ms())}
                if len(mine) >= most:
                    yield KEEP_ALIVE
        except (Stopping, LogClosed):
            yield end_event("stopping")
        except Exception as error:
            if not has_begun:
                raise
            yield end_event("error", line_of(error))
        finally:
            self._queues.give_back(topic, name, [*mine.items()])


def _place(request: Request) -> tuple[str, str]:
    return request.path_params["topic"], request.path_params["queue"]


def _worker(request: Request, given: object) -> str:
    """Return the name of the worker: what it says, or else its host."""
    if given is None:
        return request.client.host if request.client else ""
    if not isinstance(given, str) or len(given) > _WORKER_MAX or not given.isprintable():
        raise InvalidOption("worker", f"must be a text of at most {_WORKER_MAX} characters that print")
    return given


def _check_keys(given: Mapping[str, Any], known: set[str]) -> None:
    for key in given:
        if key not in known:
            raise InvalidOption.unknown(key, known)


async def _jobs_of(request: Request, *more: str) -> tuple[list[tuple[int, int]], dict[str, Any]]:
    """Return the seqs and lease ids of a body, and the whole of it. Raise `InvalidOption`."""
    query_of(request)
    given = await json_of(request, f'send an object, such as {{"jobs": [{json.dumps(_JOB_EXAMPLE)}]}}')
    _check_keys(given, {"jobs", *more})
    jobs = given.get("jobs")
    if not isinstance(jobs, list) or not 1 <= len(jobs) <= _MOST_SETTLED:
        raise InvalidOption("jobs", f"must be an array of 1 to {_MOST_SETTLED:,} jobs")
    found = list[tuple[int, int]]()
    for job in jobs:
        if not isinstance(job, dict) or job.keys() != {"seq", "lease_id"}:
            raise InvalidOption("jobs", f"must be objects with seq and lease_id, such as {json.dumps(_JOB_EXAMPLE)}")
        lease_id = job["lease_id"]
        if not isinstance(lease_id, str) or not _LEASE.fullmatch(lease_id):
            raise InvalidOption("lease_id", "must be the text of 16 digits that the claim gave")
        found.append((_whole("seq", job["seq"], 1, WHOLE_MAX), int(lease_id, 16)))
    return found, given


def _whole(name: str, value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise InvalidOption(name, f"must be a whole number from {least} to {most}")
    return value


def _job_text(job: Job) -> str:
    """Return a job as JSON: the record, and what the worker needs to settle it."""
    lease = {"lease_id": f"{job.lease_id:016x}", "deliveries": job.deliveries, "deadline_ms": job.deadline_ms}
    return f"{to_json(job.record)[:-1]}, {json.dumps(lease)[1:]}"


def _settled(settled: Settled, **more: int) -> Response:
    return JSONResponse({"done": settled.done, "lost": settled.lost, **more})
