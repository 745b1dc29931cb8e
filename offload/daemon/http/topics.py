"""The topics of the daemon: how a route finds one, its bounds, and its truncation."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from catalog.refs.oplog import acting_for
from offload.archive import Archive
from offload.daemon.http import operations as api
from offload.daemon.http.commands import run_command
from offload.daemon.http.parameters import json_of, query_of
from offload.daemon.reserved import check_open
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from offload.errors import InvalidOption
from offload.operations.command import COMMANDS
from offload.operations.router import truncating
from offload.replica_topic import ReplicaTopic
from offload.services.results import Removed
from offload.token_rights import Rights, Role, rights_of
from seglog import Log, Topic
from seglog.base.arguments import WHOLE_MAX

NAMES = api.Operation(
    "GET", "/topics", "listTopics", Role.READ, "topics",
    "The names of the topics that the token may read, replicas too.",
    {200: ("The names.", api.json_answer("topics", {"topics": ["orders"]}))},
    schemas={"topics": api.object_of(topics={"type": "array", "items": api.TEXT})},
)  # fmt: skip
BOUNDS = api.Operation(
    "GET", "/topics/{topic}/index_bounds", "indexBounds", Role.READ, "topics", "Where a topic begins and ends.",
    {200: ("The bounds.", api.json_answer("index_bounds", {"earliest_seq": 1, "head_seq": 812, "hot_first_seq": 400}))},
    errors=(404, 409), parameters=(api.TOPIC,),
    schemas={"index_bounds": api.object_of(earliest_seq=int, head_seq=int, hot_first_seq=int)},
)  # fmt: skip
TRUNCATE = api.Operation(
    "POST", "/topics/{topic}/rpc/truncate", "truncateTopic", Role.ADMIN, "topics", "Remove the records from a seq on.",
    {200: ("The records are gone.", api.json_answer(
        "truncated", {"topic": "orders", "head_seq": 999, "lsn": 12, "waits_for": None}))},
    errors=(404, 409, 415), parameters=(api.TOPIC,),
    body={
        "required": True,
        "content": {"application/json": {"schema": api.ref("truncate"), "example": {"seq": 1000}}},
    },
    schemas={
        "truncate": {
            **api.object_of(
                "message", "dry_run", "yes", seq={"type": "integer", "minimum": 1, "maximum": WHOLE_MAX}, message=str,
                dry_run=bool, yes={"type": "boolean", "default": True},
            ),
            "additionalProperties": False,
        },
        "truncated": api.object_of(topic=str, head_seq=int, lsn=(int, None), waits_for=(str, int, None)),
    },
)  # fmt: skip
_TRUNCATE_KEYS = frozenset(TRUNCATE.schemas["truncate"]["properties"])


def topic_routes(service: Service) -> list[api.RoledRoute]:
    topics = _Topics(service)
    return [NAMES.route(topics.names), BOUNDS.route(topics.index_bounds), TRUNCATE.route(topics.truncate)]


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
            {"earliest_seq": topic.earliest_seq, "head_seq": topic.head_seq, "hot_first_seq": topic.inner.hot_floor}
        )

    async def truncate(self, request: Request) -> Response:
        """Remove the records from `seq` on. A program calls this, so the request needs no `yes`."""
        query_of(request)
        name, given = request.path_params["topic"], await json_of(request, 'send an object, such as {"seq": 7}')
        for key in given:
            if key not in _TRUNCATE_KEYS:
                raise InvalidOption.unknown(key, _TRUNCATE_KEYS)
        seq = given.pop("seq", None)
        if type(seq) is not int or not 0 <= seq <= WHOLE_MAX:
            raise InvalidOption("seq", "must be a whole number: the first seq to remove")
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
    pool = service.local if service.archive is None else service.cold_reads
    return await in_threads(pool, _truncate, service.sync, service.archive, rights.name, name, seq, message)  # type: ignore[no-any-return]


def _truncate(log: Log, archive: Archive | None, client: str, name: str, seq: int, message: str) -> Removed | None:
    with truncating(log, archive, name, seq):
        if archive is None:
            log.get_topic(name).truncate(seq)
            return None
        with acting_for(client):
            return archive.truncate(name, seq, message=message)


async def is_replica(service: Service, name: str) -> bool:
    """Return whether a name is a replica's, so that its begin may wait for the store."""
    archive = service.archive
    if archive is None or service.sync.has_topic(name):
        return False
    found: bool = await in_threads(service.local, archive.replication.is_replica, name)
    return found


async def readable(service: Service, name: str) -> Topic | ReplicaTopic:
    """Return a topic of the log, or a replica. Raises `NoSuchTopic`."""
    if not await is_replica(service, name):
        return service.sync.get_topic(name)
    return await in_threads(service.cold_reads, ReplicaTopic, service.archive, name)  # type: ignore[no-any-return]
