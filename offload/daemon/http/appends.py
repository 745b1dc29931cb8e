"""The route that appends records."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from offload.commands.lines import Batch, json_batches
from offload.daemon.http.parameters import query_of, yes
from offload.daemon.http.topics import in_threads
from offload.daemon.metrics import timed
from offload.daemon.service import Service
from offload.errors import Refused
from offload.wire import LINES_TYPE, VALUES_TYPE, decode_lines, decode_values
from seglog import RecordTooLarge
from seglog.format.lines import longest_bytes, total_bytes
from seglog.values.config import check_durability

__all__ = ["append_routes"]

_JSON_LINES_TYPE = "application/x-ndjson"
_BYTES_TYPE = "application/octet-stream"
_SHORT_BYTES = 1024 * 1024


def append_routes(service: Service) -> list[Route]:
    return [Route("/topics/{topic}/records", _Appends(service).append, methods=["POST"])]


class _Appends:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def append(self, request: Request) -> Response:
        query = query_of(request, {"tag", "node", "durability", "unterminated"})
        topic = request.path_params["topic"]
        kind, body = request.headers.get("content-type", ""), await request.body()
        # Decoding a large body takes long. In the event loop it would delay every other answer.
        is_short = len(body) <= _SHORT_BYTES
        batches = (
            _batches(kind, body, query)
            if is_short
            else await in_threads(self._service.local, _batches, kind, body, query)
        )
        self._check_batches(batches, query.get("durability"))
        await self._check_takes_records(topic)
        target = self._service.log.topic(topic)
        first = last = count = 0
        with timed(self._service.metrics.append_s):
            for batch in batches:
                seqs = await target.append(
                    batch.values,
                    tag=batch.tag,
                    node=batch.node,
                    unterminated=batch.unterminated,
                    durability=query.get("durability"),
                )
                first, last, count = first or seqs.start, seqs.stop - 1, count + len(seqs)
        self._service.metrics.appended_records.inc(count)
        self._service.metrics.appended_bytes.inc(sum(total_bytes(batch.values) for batch in batches))
        return JSONResponse({"first_seq": first or None, "last_seq": last or None, "appended": count}, 201)

    def _check_batches(self, batches: list[Batch], durability: str | None) -> None:
        """Check all batches before the first one is appended. Raises `RecordTooLarge`, `InvalidSetting`."""
        limit = self._service.sync.settings.max_record_bytes
        longest = max((longest_bytes(batch.values) for batch in batches), default=0)
        if longest > limit:
            raise RecordTooLarge(longest, limit)
        if durability is not None:
            check_durability(durability)

    async def _check_takes_records(self, topic: str) -> None:
        """Prepare the first append to a topic: take over a branch or replica, or check the name of a new topic.

        Only a branch or a replica asks the remote.
        """
        archive = self._service.archive
        if archive is None or self._service.sync.has_topic(topic):
            return
        if "@" in topic or archive.replication.is_replica(topic):
            await in_threads(self._service.cold_reads, archive.open_for_append, topic)
        else:
            archive.open_for_append(topic)


def _batches(content_type: str, body: bytes, query: Mapping[str, str]) -> list[Batch]:
    tag, node, kind = query.get("tag"), query.get("node"), content_type.partition(";")[0].strip()
    if kind == _JSON_LINES_TYPE:
        return list(json_batches(io.BytesIO(body), tag, node))
    values: Sequence[bytes]
    if kind == VALUES_TYPE:
        values = decode_values(body)
    elif kind == LINES_TYPE:
        values = decode_lines(body)
    elif kind == _BYTES_TYPE:
        values = [body]
    else:
        hint = f"send Content-Type: {_BYTES_TYPE} for one value, {_JSON_LINES_TYPE} for JSON lines"
        told = f"{kind} is not a content type of records" if kind else "the request has no Content-Type"
        raise Refused(415, "type", told, hint=hint)
    return [Batch(values, len(body), len(values), tag, node, unterminated=yes(query, "unterminated"))]
