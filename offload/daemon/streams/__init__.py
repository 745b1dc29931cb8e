"""Durable Streams, version 1.0: streams of bytes or JSON messages under a URL, each with a topic behind it.

    request     what the daemon reads        offload.daemon.streams.requests, names, offsets
    stream      what it is                   entries (what a PUT fixed), marks (what the last record says)
    place       where that is kept           registry (topic `_streams`), live (in use), expiry, store (made, deleted)
    work        appends, reads               turns, appends, reads, messages, answers, routes

A stream is a topic, so `seglog read`, `seglog restore` and Spark see its records. A fork is a branch.
docs/streams.md describes the use. Decision 0230 has the reasons.

Source: the Durable Streams protocol, version 1.0.
"""

from __future__ import annotations

from offload.daemon.streams.routes import stream_routes

__all__ = ["stream_routes"]
