"""The topics of the daemon: how a route finds one, its bounds, and its truncation."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from catalog.refs.oplog import acting_for
from offload.archive import Archive
from offload.daemon.http.commands import run_command
from offload.daemon.http.parameters import json_of, query_of
from offload.daemon.service import Service
from offload.daemon.streams.reserved import check_open
from offload.daemon.threads import in_threads
from offload.errors import InvalidOption, UnsupportedOption
from offload.operations.command import COMMANDS
from offload.replica_topic import ReplicaTopic
from offload.rights import Rights, rights_of
from offload.services.results import Removed
from seglog import Topic
from seglog.base.arguments import WHOLE_MAX

__all__ = ["readable", "topic_routes", "truncated"]

_TRUNCATE_KEYS = frozenset({"seq", "message", "dry_run", "yes"})


def topic_routes(service: Service) -> list[Route]:
    topics = _Topics(service)
    return [
        Route("/topics", topics.names),
        Route("/topics/{topic}/index_bounds", topics.index_bounds),
        Route("/topics/{topic}/rpc/truncate", topics.truncate, methods=["POST"]),
    ]


class _Topics:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def names(self, request: Request) -> Response:
        query_of(request)
        archive = self._service.archive
        replicas = [] if archive is None else await in_threads(self._service.local, archive.replication.replicas)
        names, rights = {*self._service.sync.topics(), *replicas}, rights_of(request.scope)
        return JSONResponse({"topics": sorted(name for name in names if rights.shows(name))})

    async def index_bounds(self, request: Request) -> Response:
        query_of(request)
        topic = await readable(self._service, request.path_params["topic"])
        return JSONResponse(
            {"earliest_seq": topic.earliest_seq, "head_seq": topic.head_seq, "hot_first_seq": topic.hot_floor}
        )

    async def truncate(self, request: Request) -> Response:
        """Remove the records from `seq` on. A program calls this, so the request needs no `yes`."""
        query_of(request)
        name, given = request.path_params["topic"], await json_of(request, 'send an object, such as {"seq": 7}')
        for key in given:
            if key not in _TRUNCATE_KEYS:
                raise UnsupportedOption(key, _TRUNCATE_KEYS)
        seq = given.pop("seq", None)
        if type(seq) is not int or not 1 <= seq <= WHOLE_MAX:
            raise InvalidOption("seq", "must be a whole number from 1 on: the first seq to remove")
        check_open(name)
        command = COMMANDS["truncate"]
        values = command.arguments({"yes": True, **given, "topic": name, "start": seq})
        if values["dry_run"] or not values["yes"]:  # without `yes`, the command refuses
            return await run_command(self._service, command, values, request)
        result = await truncated(self._service, rights_of(request.scope), name, seq, values["message"])
        told = {"lsn": result and result.lsn, "waits_for": result and result.waits_for}
        return JSONResponse({"topic": name, "head_seq": self._service.sync.get_topic(name).head_seq, **told})


async def truncated(service: Service, rights: Rights, name: str, seq: int, message: str = "") -> Removed | None:
    """Remove the records from `seq` on. Return the archive's result, or None without an archive."""
    if service.archive is None:
        await in_threads(service.local, service.sync.get_topic(name).truncate, seq)
        return None
    return await in_threads(service.cold_reads, _truncate, service.archive, rights.name, name, seq, message)  # type: ignore[no-any-return]


def _truncate(archive: Archive, client: str, name: str, seq: int, message: str) -> Removed:
    with acting_for(client):
        return archive.truncate(name, seq, message=message)


async def readable(service: Service, name: str) -> Topic | ReplicaTopic:
    """Return a topic of the log, or a replica. Raises `NoSuchTopic`."""
    archive = service.archive
    if archive is None or service.sync.has_topic(name):
        return service.sync.get_topic(name)
    if not await in_threads(service.local, archive.replication.is_replica, name):
        return service.sync.get_topic(name)
    return await in_threads(service.cold_reads, ReplicaTopic, archive, name)  # type: ignore[no-any-return]
