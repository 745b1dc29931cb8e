"""The HTTP API: records of a topic, and the commands.

    GET  /topics/{topic}/index_bounds          earliest_seq, head_seq, hot_first_seq
    GET  /topics/{topic}/records/{seq}         one value, unchanged; seq, time, tag and node in headers
    GET  /topics/{topic}/records               live records: from, to, tail, since_ms, until_ms, tag, exclude_node,
                                               limit, max_bytes, gaps, wait_s (long poll), follow (the answer then
                                               continues with new records). Accept chooses JSON lines, values with
                                               seqs, an Arrow stream, or events (offload.daemon.http.forms)
    HEAD /topics/{topic}/records               bounds and epoch, in headers (offload.daemon.http.reads)
    POST /topics/{topic}/records               append (offload.daemon.http.appends), by content type (bodies), with the
                                               conditions and identities of its headers (conditions); tag, node,
                                               durability, unterminated, whole as query. The answer 201 comes when the
                                               records are as safe as the durability says, 200 if they were in already
    POST /topics/{topic}/rpc/truncate          {"seq": N}
    POST /topics/{topic}/rpc/{command}         the other commands (offload.daemon.jobs)
    POST /rpc/{command}                        the same, with the topic in the body, or without a topic
    PUT, POST, GET, HEAD, DELETE /streams/{path}
                                               Durable Streams, version 1.0 (offload.daemon.streams)
    GET  /daemon/events                        state changes of the daemon, as server-sent events
    GET  /topics, /healthz, /readyz, /metrics, /openapi.json

Errors are application/problem+json with title (the error's class), detail and hint (offload.daemon.problems). If an
error comes after the first JSON lines, the answer ends with a line that has the key `error`.

HTTP-1  At most one thread works for a connection, and only while the connection asks for more.
HTTP-2  Reads that begin below the hot floor use the threads of `cold_reads`, other reads those of `hot_reads`. So a
    store that hangs takes no thread from hot reads or appends.

Source: the commit log server of "Building segmented logs in Rust" (index_bounds, records, rpc/truncate); PIP-17.
"""

from __future__ import annotations

from starlette.applications import Starlette

from offload.daemon.http.answers import app_of
from offload.daemon.http.appends import append_routes
from offload.daemon.http.commands import command_routes
from offload.daemon.http.events import event_routes
from offload.daemon.http.probes import probe_routes
from offload.daemon.http.reads import read_routes
from offload.daemon.http.roles import guarded
from offload.daemon.http.topics import topic_routes
from offload.daemon.service import Service
from offload.daemon.streams import stream_routes

__all__ = ["make_app"]


def make_app(service: Service) -> Starlette:
    """Return the ASGI application of the API. The caller puts the guard in front of it (offload.daemon.guard)."""
    makers = (probe_routes, event_routes, read_routes, append_routes, topic_routes, stream_routes, command_routes)
    return app_of([guarded(route) for make in makers for route in make(service)])
