"""Test that the event loop does the same work for an append of n and of 2n values.

Only the loop's waits for threads differ from run to run, by a few calls."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.calls import count_calls
from catalog.objects.memory import MemoryStore
from offload.daemon import http
from offload.daemon.http.direct import direct
from offload.wire import LINES_TYPE, VALUES_TYPE, encode_values
from tests.offload.daemon.conftest import serving
from tests.offload.daemon.test_direct import asked

PATH = "/topics/t/records"
COUNT = 15_000
WHOLE = b"whole=1"


def calls_of(runner: asyncio.Runner, app: Any, kind: str, body: bytes, count: int) -> int:
    """Return the calls in the event loop of an append of `count` values."""

    async def append() -> None:
        status, told, _ = await asked(app, PATH, (b"content-type", kind.encode()), body=body, query_string=WHOLE)
        assert (status, told["appended"]) == (201, count)

    return count_calls(partial(runner.run, append()))


@pytest.mark.parametrize(("kind", "one"), [(VALUES_TYPE, encode_values([bytes(80)])), (LINES_TYPE, b"x" * 80 + b"\n")])
def test_an_append_of_twice_as_many_values_makes_no_more_calls_in_the_loop(
    tmp_path: Path, kind: str, one: bytes
) -> None:
    with asyncio.Runner() as runner:
        service = serving(tmp_path / "data", MemoryStore(), SERVE_CHECK_INTERVAL_MS="3600000")
        app = direct(http.make_app(runner.run(service.__aenter__())))
        try:
            calls_of(runner, app, kind, one, 1)  # makes the topic
            few, many = (calls_of(runner, app, kind, one * count, count) for count in (COUNT, 2 * COUNT))
        finally:
            runner.run(service.__aexit__(None, None, None))
    assert many < few * 1.5, f"{few} calls for {COUNT} values, {many} for twice as many"
