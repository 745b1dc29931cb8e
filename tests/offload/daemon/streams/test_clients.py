"""The clients of Durable Streams in Python and TypeScript append to a stream of a real daemon, tail it and fork it.

TESTS_STREAMS names a directory with `node_modules`, as for the conformance suite, and with `venv`, in which pip
installed `durable-streams`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import seglog
from tests.daemons import served

_SUITE = Path(os.environ.get("TESTS_STREAMS", "/absent"))
_TIMEOUT_S = 120
_PYTHON = """
import json, sys, threading
from durable_streams import DurableStream, stream

url = sys.argv[1]
one = DurableStream.create(url, content_type="application/json", body=b'[{"n": 1}]')
one.append({"n": 2})
with stream(url, offset="-1", live=False) as found:
    read, offset = found.read_json(), found.offset
tailed = []


def tail(live):
    with stream(url, offset=offset, live=live) as found:
        for each in found.iter_json():
            tailed.append(each["n"])
            return


for live in ("long-poll", "sse"):
    thread = threading.Thread(target=tail, args=(live,))
    thread.start()
    if live == "long-poll":
        one.append({"n": 3})
    thread.join()
fork = DurableStream.create(
    url + "-fork", content_type="application/json", headers={"Stream-Forked-From": "/streams/" + url.rpartition("/")[2]}
)
fork.append({"n": 4})
with stream(url + "-fork", offset="-1", live=False) as found:
    print(json.dumps([[each["n"] for each in read], tailed, [each["n"] for each in found.read_json()]]))
"""
_TYPESCRIPT = """
const { DurableStream, stream } = await import(process.argv[2])
const url = process.argv[3]
const all = async (at) => (await (await stream({ url: at, offset: "-1", live: false })).json()).map((each) => each.n)
const one = await DurableStream.create({ url, contentType: "application/json" })
await one.append(JSON.stringify({ n: 1 }))
await one.append(JSON.stringify({ n: 2 }))
const read = await all(url)
const offset = (await one.head()).offset
const tailed = []
for (const live of ["long-poll", "sse"]) {
  const end = new AbortController()
  const found = await stream({ url, offset, live, signal: end.signal, json: true })
  await new Promise((done) => {
    found.subscribeJson(async (batch) => {
      if (batch.items.length) { tailed.push(batch.items[0].n); done() }
    })
    if (live === "long-poll") one.append(JSON.stringify({ n: 3 }))
  })
  end.abort()
}
const fork = await DurableStream.create({
  url: url + "-fork", contentType: "application/json",
  headers: { "Stream-Forked-From": new URL(url).pathname },
})
await fork.append(JSON.stringify({ n: 4 }))
console.log(JSON.stringify([read, tailed, await all(url + "-fork")]))
process.exit(0)
"""


@pytest.mark.soak(part=8)
@pytest.mark.parametrize("language", ["python", "typescript"])
def test_a_client_appends_tails_and_forks(tmp_path: Path, language: str) -> None:
    seglog.open(tmp_path / "d").close()
    with served(tmp_path / "d", (tmp_path / "remote").as_uri()) as daemon:
        url = f"http://127.0.0.1:{daemon.port}/streams/s"
        ran = subprocess.run(_command(language, tmp_path, url), capture_output=True, timeout=_TIMEOUT_S, check=False)
        assert ran.returncode == 0, ran.stderr.decode()
        assert json.loads(ran.stdout) == [[1, 2], [3, 3], [1, 2, 3, 4]]


def _command(language: str, folder: Path, url: str) -> list[str]:
    """Return the command that runs the client. Skip the test if the client is not installed."""
    if language == "python":
        python = _SUITE / "venv" / "bin" / "python"
        if not python.exists():
            pytest.skip(f"{python} is absent")
        return [str(python), "-c", _PYTHON, url]
    client = _SUITE / "node_modules" / "@durable-streams" / "client" / "dist" / "index.js"
    if not (client.exists() and shutil.which("node")):
        pytest.skip(f"{client} or node is absent")
    script = folder / "client.mjs"
    script.write_text(_TYPESCRIPT)
    return ["node", str(script), str(client.absolute()), url]
