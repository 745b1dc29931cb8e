"""The routes of cursors (offload.daemon.cursors): acks, and the list of a topic.

    POST /topics/orders/cursors/billing/acks     {"seqs": [7, 9], "epoch": 1}  or  {"up_to": 9, "epoch": 1}

The commands `cursor create`, `reset` and `delete` are at `/rpc/cursor/...`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from offload.daemon.http import operations as api
from offload.daemon.http.commands import run_command
from offload.daemon.http.parameters import json_of, query_of
from offload.daemon.service import Service
from offload.errors import InvalidOption
from offload.operations.command import COMMANDS
from offload.token_rights import Role
from seglog.base.arguments import WHOLE_MAX

_WHOLE = {"type": "integer", "minimum": 1, "maximum": WHOLE_MAX}
_MOST_SEQS = 100_000
"""The event loop goes through them: the others that wait for it must not wait for long."""
_SEQS = {"type": "array", "items": _WHOLE, "maxItems": _MOST_SEQS}
_CURSOR = {
    "name": "cursor", "in": "path", "required": True, "description": "The cursor.",
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"}, "example": "billing",
}  # fmt: skip
ACKS = api.Operation(
    "POST", "/topics/{topic}/cursors/{cursor}/acks", "ackRecords", Role.READ, "records",
    "Ack records of a cursor: seqs, or all up to one. The answer comes when the ack is durable.",
    {200: ("The position of the cursor.", api.json_answer("acked", {"floor": 9, "epoch": 1, "acked_above": 0}))},
    errors=(404, 409, 415, 507), parameters=(api.TOPIC, _CURSOR),
    body={
        "required": True,
        "content": {"application/json": {"schema": api.ref("ack"), "example": {"seqs": [7, 9], "epoch": 1}}},
    },
    schemas={
        "ack": {
            **api.object_of("seqs", "up_to", seqs=_SEQS, up_to=_WHOLE, epoch=_WHOLE),
            "description": "`epoch` is the one in the ids of the records. Either `seqs` or `up_to`.",
            "additionalProperties": False,
        },
        "acked": api.object_of(floor=int, epoch=int, acked_above=int),
    },
)  # fmt: skip
_LISTED = '{"schema": 1, "kind": "cursor_listed"}\n'
LIST = api.Operation(
    "GET", "/topics/{topic}/cursors", "listCursors", Role.READ, "records", "The cursors of a topic, with their lags.",
    {200: ("One JSON object a line.", api.lines_of(api.ref("cursor_listed"), _LISTED))},
    errors=(404, 409), parameters=(api.TOPIC,),
)  # fmt: skip
_KEYS = frozenset(ACKS.schemas["ack"]["properties"])
_HINT = 'send an object, such as {"seqs": [7], "epoch": 1}'


def cursor_routes(service: Service) -> list[api.RoledRoute]:
    cursors = _Cursors(service)
    return [ACKS.route(cursors.ack), LIST.route(cursors.list)]


class _Cursors:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def ack(self, request: Request) -> Response:
        query_of(request)
        topic, name = request.path_params["topic"], request.path_params["cursor"]
        seqs, epoch = _ack_of(await json_of(request, _HINT))
        cursor = await self._service.cursors.acked(topic, name, seqs, epoch)
        return JSONResponse({"floor": cursor.floor, "epoch": cursor.epoch, "acked_above": len(cursor.above)})

    async def list(self, request: Request) -> Response:
        query_of(request)
        command = COMMANDS["cursor/list"]
        values = command.arguments({"topic": request.path_params["topic"]})
        return await run_command(self._service, command, values, request)


def _ack_of(given: dict[str, Any]) -> tuple[Sequence[int], int]:
    """Return the seqs and the epoch of an ack. Raise `InvalidOption`."""
    for key in given:
        if key not in _KEYS:
            raise InvalidOption.unknown(key, _KEYS)
    if ("seqs" in given) == ("up_to" in given):
        raise InvalidOption("seqs", "or up_to says what is acked, and not both")
    epoch = _whole("epoch", given.get("epoch"))
    if "up_to" in given:
        return range(1, _whole("up_to", given["up_to"]) + 1), epoch
    seqs = given["seqs"]
    if not isinstance(seqs, list):
        raise InvalidOption("seqs", "must be an array of seqs")
    if len(seqs) > _MOST_SEQS:
        raise InvalidOption(
            "seqs", f"has at most {_MOST_SEQS:,} seqs; ack the others with `up_to`, or with one more ack"
        )
    for seq in seqs:
        _whole("seqs", seq)
    return seqs, epoch


def _whole(name: str, value: object) -> int:
    if type(value) is not int or not 1 <= value <= WHOLE_MAX:
        raise InvalidOption(name, f"must be a whole number from 1 to {WHOLE_MAX}, as in the ids of the records")
    return value
