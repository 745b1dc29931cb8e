"""The route by which followers of a proxy learn of new commits: one answer in place of many requests to the store.

FORWARD-1  The answer is what this daemon knows. Its own sync asks the store once for all followers, each
    `sync_interval_s`. While that fails, followers get its error, and not the word that there is no news.
FORWARD-2  A client that waits holds no thread. Each second, or each check interval, one task looks at the topic for all
    of them, also for commits that this daemon itself makes. It ends after a minute, and so may a wait that began later.
    A client whose volume is another one gets its answer at once: LSNs of two volumes say nothing of each other.
FORWARD-3  Another directory may have taken over a topic that this daemon writes. So the daemon looks at such a topic as
    at those that it follows, as long as followers ask for it. Without a look of late, and once another one writes the
    topic, followers get the answer for an absent name, and read the objects.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response

from catalog.errors import AccessDenied, InvalidKey, NoSuchObject, StoreUnreachable
from catalog.format.ids import Vid
from catalog.objects.http import FORWARD_HEADER, forward_sum
from catalog.objects.object_store import Forward
from offload.daemon.background.triggers import is_over
from offload.daemon.http import operations as api
from offload.daemon.http.objects import absent, check_proxy, of_store
from offload.daemon.http.parameters import query_of, whole
from offload.daemon.proxy import CACHED
from offload.daemon.request_places import become_follower
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from offload.daemon.waits import unless_gone
from offload.errors import InvalidOption
from offload.token_rights import Role
from seglog import SeglogError

_MOST_WAIT_S = 60
_MOST_PAUSE_S = 1.0
_TYPE = "application/vnd.seglog.values"
FORWARD = api.Operation(
    "GET", "/topics/{topic}/forward", "forwardTopic", Role.READ, "objects", "The commits after an LSN, from a proxy.",
    {
        200: (
            "The commits, each after its length (u32, little-endian), or the newest one as a checkpoint.",
            {_TYPE: {"schema": api.BYTES}},
        ),
        204: ("No news.", {}),
    },
    errors=(404,),
    parameters=(
        api.TOPIC,
        api.in_query("since", "integer", "The LSN that the client has; 0 without one.", minimum=0, default=0),
        api.in_query("vid", "string", "The volume that the client has: another one is news."),
        api.in_query("wait_s", "integer", "Wait so long for news.", minimum=0, maximum=_MOST_WAIT_S, default=0),
    ),
    headers={FORWARD_HEADER: "Volume, newest LSN, boundary, and the XXH3 of these and the body."},
)  # fmt: skip


def forward_routes(service: Service) -> list[api.RoledRoute]:
    return [FORWARD.route(_Forward(service).forward)]


def _vid_in(query: Mapping[str, str]) -> Vid | None:
    """Return the volume that the client has, if it says so. Raises `InvalidOption`."""
    try:
        return Vid.parse(query["vid"]) if "vid" in query else None
    except InvalidKey as error:
        raise InvalidOption("vid", f"{query['vid']!r} is no id of a volume") from error


class _Forward:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._news: dict[str, asyncio.Task[None]] = {}

    async def forward(self, request: Request) -> Response:
        query = query_of(request, api.names_of(FORWARD.parameters))
        name, since, wait_s = request.path_params["topic"], whole(query, "since") or 0, whole(query, "wait_s") or 0
        vid = _vid_in(query)
        check_proxy(self._service)
        if wait_s > _MOST_WAIT_S:
            raise InvalidOption("wait_s", f"{wait_s} is not from 0 to {_MOST_WAIT_S}")
        found = await self._found(name, since)
        if wait_s and found is not None and found.lsn <= since and vid in (None, found.vid):
            become_follower(request.scope)
            news = self._news.get(name)
            if news is None:
                news = self._news[name] = asyncio.create_task(self._newer(name, found))
            await unless_gone(request, lambda: asyncio.wait({news}, timeout=wait_s))
            found = await self._found(name, since)
        if found is None:
            return absent(NoSuchObject(name))
        body = b"".join(struct.pack("<I", len(each)) + each for each in found.bodies)
        facts = f"{found.vid} {found.lsn} {found.boundary}"
        headers = {FORWARD_HEADER: f"{facts} {forward_sum(facts, body)}"}
        self._service.metrics.proxied(CACHED, len(body))
        return Response(body, 200 if body else 204, headers, _TYPE if body else None)

    async def _found(self, name: str, since: int) -> Forward | None:
        service, work = self._service, self._service.works.of(name)
        assert service.archive is not None  # noqa: S101 - `check_proxy` saw its store
        if service.sync.has_topic(name):
            work.asked_at_ms = service.now_ms()
            if is_over(work.looked_at_ms, service.looks_within_ms, service.now_ms()):
                return None
        elif isinstance(work.sync_error, (AccessDenied, StoreUnreachable)):
            raise of_store(work.sync_error) from work.sync_error
        elif work.sync_error is not None:
            raise work.sync_error
        call = service.archive.replication.followed_from
        return await in_threads(service.cold_reads, call, name, since)  # type: ignore[no-any-return]

    async def _newer(self, name: str, known: Forward) -> None:
        """Look, for all that wait, until the topic has another commit or volume, and for as long as one may wait.

        An error ends the wait as well: each of those that wait looks again, and meets it there.
        """
        service, loop = self._service, asyncio.get_running_loop()
        end_s = loop.time() + _MOST_WAIT_S
        try:
            while loop.time() < end_s and not service.stopping.is_set():
                await asyncio.sleep(min(_MOST_PAUSE_S, service.settings.check_interval_ms / 1000))
                with suppress(SeglogError, OSError):
                    found = await self._found(name, known.lsn)
                    if found is not None and (found.vid, found.lsn) == (known.vid, known.lsn):
                        continue
                return
        finally:
            del self._news[name]
