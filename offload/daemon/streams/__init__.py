"""Durable Streams, version 1.0: streams of bytes or JSON messages under a URL, each with a topic behind it.

    request     what the daemon reads        offload.daemon.streams.requests
    stream      what it is                   entries (what a PUT fixed)
    place       where that is kept           registry (topic `_streams`), live (in use), store (made, deleted)
    work        appends, reads               appends, reads, messages, routes

A stream is a topic, so `seglog read`, `seglog restore` and Spark see its records. A fork is a branch.
docs/streams.md describes the use. Decision 0230 has the reasons.

Source: the Durable Streams protocol, version 1.0.
"""

from __future__ import annotations

from offload.daemon.streams.routes import stream_endpoint

__all__ = ["stream_endpoint"]
