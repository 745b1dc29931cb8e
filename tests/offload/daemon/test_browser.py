"""A page in a real Chromium follows a topic by WebSocket and by EventSource, through a proxy that cuts both.

    1  The page opens a WebSocket and an EventSource over the proxy. Each begins at the first record of the topic.
    2  The test appends all the while. The proxy cuts a connection after some of its bytes, often within a message.
    3  The WebSocket resumes with the last `last`. The EventSource reconnects by itself, with its `Last-Event-ID`.
    4  After so many cuts the test appends the last record. Both have to have each record once, in order.

`make test-browser` installs playwright in `.venv/browser`. The browser is Debian's.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from offload.daemon.service import Service
from tests.work import run_seed, tell
from tests.worlds.cutting import CuttingProxy
from tests.worlds.sockets import SocketWorld, in_the_loop

ROOT = Path(__file__).resolve().parents[3]
_PYTHON = ROOT / ".venv" / "browser" / "bin" / "python"
_CHROMIUM = shutil.which("chromium") or ""
_EVENTS = "/events"
_TARGET = f"{_EVENTS}?topic=live:1"
_PAGE = """<!doctype html><meta charset="utf-8"><title>live</title><script>
const base = "http://127.0.0.1:PORT", heard = {socket: [], events: [], faults: []}, ended = {};
let last = null, finish;
window.done = new Promise((resolve) => { finish = resolve; });
function take(name, record) {
  heard[name].push(record.seq);
  ended[name] ||= record.value === "end";
  if (ended.socket && ended.events) finish(heard);
}
function connect() {
  const socket = new WebSocket(base.replace("http", "ws") + "/ws");
  const begin = () => last === null ? {from: 1} : {last};
  socket.onopen = () => socket.send(JSON.stringify({do: "subscribe", id: 1, topic: "live", ...begin()}));
  socket.onmessage = (event) => {
    const message = JSON.parse(event.data);
    if (message.is === "records") {
      last = message.last;
      for (const record of message.records) take("socket", record);
    } else if (message.is !== "subscribed") heard.faults.push(message);
  };
  socket.onclose = () => { if (!ended.socket) setTimeout(connect, 10); };
}
connect();
const events = new EventSource(base + "TARGET");
for (const name of ["record", "records"]) events.addEventListener(name, (event) => {
  for (const record of [JSON.parse(event.data)].flat()) take("events", record);
  if (ended.events) events.close();
});
for (const name of ["truncated", "gap", "end"]) events.addEventListener(name, () => heard.faults.push(name));
</script>"""


@pytest.mark.skipif(not _CHROMIUM, reason="there is no chromium on PATH (Debian: apt install chromium)")
@pytest.mark.skipif(not _PYTHON.exists(), reason="playwright is not installed: `make test-browser` does it")
@pytest.mark.parametrize(
    "cuts",
    [
        pytest.param(5, marks=pytest.mark.long),
        pytest.param(int(os.environ.get("TESTS_CUTS", "500")), marks=pytest.mark.soak(part=3), id="many"),
    ],
)
def test_a_browser_gets_each_record_once_and_in_order_over_connections_that_are_cut(tmp_path: Path, cuts: int) -> None:
    def is_enough(made: Counter[str]) -> bool:
        return made.total() >= cuts and min(made["/ws"], made[_EVENTS]) >= max(1, cuts // 50)

    async def run() -> None:
        world = SocketWorld(tmp_path)
        async with (
            _pages() as (origin, page),
            world.served(asks_for_tokens=False, SERVE_ALLOWED_ORIGINS=origin) as served,
            CuttingProxy(served.port, random.Random(run_seed()), is_enough).open() as proxy,
        ):
            await served.service.log.topic("live").append([b"first"])
            page.append(_PAGE.replace("PORT", str(proxy.port)).replace("TARGET", _TARGET).encode())
            program = str(ROOT / "tests" / "worlds" / "live_page.py")
            browser = await asyncio.create_subprocess_exec(
                _PYTHON, program, origin, _CHROMIUM, stdout=asyncio.subprocess.PIPE
            )
            appending = asyncio.create_task(_append(served.service, lambda: is_enough(proxy.cuts)))
            try:
                async with asyncio.timeout(60 + cuts * 4):
                    out, _ = await browser.communicate()
                head = await appending
            finally:
                appending.cancel()
                if browser.returncode is None:
                    browser.kill()
                    await browser.wait()
        heard = json.loads(out)
        assert heard["faults"] == []
        for name in ("socket", "events"):
            assert heard[name] == list(range(1, head + 1)), (name, proxy.cuts)
        parts = ", ".join(f"{count} of {path}" for path, count in sorted(proxy.cuts.items()))
        tell(f"{head:,} records in Chromium over connections that were cut {proxy.cuts.total()} times ({parts})")

    in_the_loop(run())


async def _append(service: Service, is_enough: Callable[[], bool]) -> int:
    """Append records until there were cuts enough, and then the last one. Return its seq."""
    topic = service.log.topic("live")
    while not is_enough():
        await topic.append([b"v" * 100] * 3, durability="memory")
        await asyncio.sleep(0.01)
    return (await topic.append([b"end"])).start


@asynccontextmanager
async def _pages() -> AsyncIterator[tuple[str, list[bytes]]]:
    """Serve a page. Yield its origin, and a list for the page."""
    page = list[bytes]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        writer.write(head % len(page[0]) + page[0])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", page
    finally:
        server.close()
