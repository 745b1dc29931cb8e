"""Each route and each command costs the same beside n and beside 2n other things, unless `GROWS` has a reason."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from starlette.routing import Route

import seglog
from offload.operations.command import COMMANDS
from seglog.client.bodies import encode_values
from seglog.interrupts import owned
from tests.promises.costly import (
    JSON,
    JSON_LINES,
    LINES,
    TTL,
    VALUES,
    Dimension,
    Measure,
    Request,
    World,
    command,
    loop_calls,
)
from tests.seams.log import engine_of
from tests.work import tell

CALLS, STORE, FILES = Measure.CALLS, Measure.STORE, Measure.FILES
TOPICS, RECORDS, COMMITS, BRANCHES, STREAMS = Dimension


def _plan(world: World) -> dict[str, object]:
    return {"number": json.loads(world.answer.splitlines()[-1])["plan"]}


def _job(world: World) -> bytes:
    """Return the body that settles the job of the claim before."""
    [job] = json.loads(world.answer)["jobs"]
    return json.dumps({"jobs": [{"seq": job["seq"], "lease_id": job["lease_id"]}]}).encode()


SAID = b"""{"do": "append", "id": 1, "topic": "t", "records": [{"value": "x"}]}
{"do": "subscribe", "id": 2, "topic": "t", "tail": 1}
"""
#: In this order, because each one finds what those before it have left. Those that only read come first.
REQUESTS = (
    Request("GET /healthz", "GET", "/healthz"),
    Request("GET /readyz", "GET", "/readyz"),
    Request("GET /metrics", "GET", "/metrics"),
    Request("GET /openapi.json", "GET", "/openapi.json"),
    Request("GET /daemon/events", "GET", "/daemon/events"),
    Request("GET /events", "GET", "/events", query=b"topic=t"),
    Request("POST /tickets", "POST", "/tickets"),
    Request("GET /topics", "GET", "/topics"),
    Request("GET /topics/{topic}/index_bounds", "GET", "/topics/t/index_bounds"),
    Request("GET /topics/{topic}/records/{seq}", "GET", "/topics/t/records/3"),
    Request("GET /topics/{topic}/records", "GET", "/topics/t/records", query=b"limit=3"),
    Request("GET /topics/{topic}/records", "GET", "/topics/t/records", query=b"tail=3"),
    Request("HEAD /topics/{topic}/records", "HEAD", "/topics/t/records"),
    Request("GET /streams/{path:path}", "GET", "/streams/s", query=b"offset=-1"),
    Request("HEAD /streams/{path:path}", "HEAD", "/streams/s"),
    command("read", topic="t", limit=3),
    command("tail", topic="t", count=3),
    command("status"),
    command("status", topic="t"),
    command("log", topic="t", limit=1),
    command("log", topic="t"),
    command("show", topic="t", commit="lsn:2"),
    command("diff", left="t:lsn:1", right="t:lsn:2"),
    command("segments", topic="t"),
    command("points", topic="t"),
    command("resolve", topic="t", to="lsn:1"),
    command("uploads"),
    command("branch/list", topic="t"),
    command("branch/diff", left="t@fix", right="t"),
    command("tag/list", topic="t"),
    command("pin/list"),
    command("oplog", limit=5),
    command("topic/show", topic="t"),
    command("topic/list"),
    command("gc/explain", lambda world: {"key": world.some_key()}),
    command("cost"),
    command("gc/plan", dry_run=True),
    Request("POST /topics/{topic}/records", "POST", "/topics/t/records", encode_values([b"x"]), (VALUES,)),
    Request("PUT /topics/{topic}/records", "PUT", "/topics/t/records", b"x"),
    Request("GET /ws", "GET", "/ws", SAID),
    Request("POST /topics/{topic}/rpc/{command:path}", "POST", "/topics/t/rpc/seal", b"{}", (JSON,)),
    command("cursor/create", topic="t", name="c"),
    Request("GET /topics/{topic}/cursors", "GET", "/topics/t/cursors"),
    Request(
        "POST /topics/{topic}/cursors/{cursor}/acks",
        "POST",
        "/topics/t/cursors/c/acks",
        b'{"seqs": [], "epoch": 1}',
        (JSON,),
    ),
    command("cursor/list", topic="t"),
    command("cursor/reset", topic="t", name="c", to="head"),
    command("cursor/delete", topic="t", name="c"),
    command("queue/create", topic="t", name="q", dead_letter="l"),
    command("queue/list", topic="t"),
    command("queue/show", topic="t", name="q"),
    command("queue/set", topic="t", name="q", max_deliver=2),
    *(
        Request(f"POST /topics/{{topic}}/queues/{{queue}}/{path}", "POST", f"/topics/t/queues/q/{path}", body, (JSON,))
        for each in ("acks", "extensions", "nacks")
        for path, body in (("claims", b"{}"), (each, _job))
    ),
    Request("GET /topics/{topic}/queues/{queue}/work", "GET", "/topics/t/queues/q/work"),
    command("queue/redrive", topic="t", name="q"),
    command("queue/delete", topic="t", name="q"),
    command("router/create", name="r", source="t", destination="copies", at="head"),  # so no copies are under way
    command("router/pause", name="r"),
    command("router/list"),
    command("router/resume", name="r"),
    command("router/delete", name="r"),
    command("seal", topic="t"),
    command("offload", topic="t"),
    Request("PUT /streams/{path:path}", "PUT", "/streams/new", b"[1]", (JSON, TTL)),
    Request("POST /streams/{path:path}", "POST", "/streams/s", b"[1]", (JSON,)),
    Request("DELETE /streams/{path:path}", "DELETE", "/streams/new"),
    command("sync", topic="t", push=True),
    command("sync", topic="t", fetch=True),
    command("sync", topic="t"),
    command("pause", topic="t"),
    command("resume", topic="t"),
    command("retry", topic="t"),
    command("takeover", topic="t"),
    command("tag/create", topic="t", name="v"),
    command("tag/delete", topic="t", name="v"),
    command("resolve", topic="t", to="head", pin="1h"),
    command("pin/refresh", lambda world: {"name": json.loads(world.answer.splitlines()[-1])["pin"]}),
    command("pin/release", lambda world: {"name": json.loads(world.answer)["pin"]}),
    command("restore", topic="t", to="head", **{"as": "back"}),
    command("copy", topic="t", new="copied"),
    command("branch/create", topic="t", name="c"),
    command("branch/rename", topic="t", name="c", new="d"),
    command("branch/delete", topic="t", name="d", dry_run=True),
    command("branch/delete", topic="t", name="d", yes=True),
    command("branch/undelete", topic="t", name="d"),
    command("undo"),
    command("topic/create", topic="made"),
    command("topic/set", topic="made", window="30d"),
    command("topic/delete", topic="made", yes=True),
    command("delete", topic="t", before=2, dry_run=True),
    command("delete", topic="t", before=2, yes=True),
    command("evict", topic="t", before=3, yes=True),
    command("truncate", lambda world: {"from": world.head}, topic="t", yes=True),
    Request(
        "POST /topics/{topic}/rpc/truncate",
        "POST",
        "/topics/t/rpc/truncate",
        lambda world: json.dumps({"seq": world.head}).encode(),
        (JSON,),
    ),
    command("compact", topic="t"),
    command("upgrade", yes=True),
    command("reset", topic="t", discard=True, yes=True),
    command("branch/promote", topic="t", name="fix", leave=True),
    command("gc/plan", retain="1s"),
    command("gc/apply", _plan, retain="1s", grace="1s"),
    command("gc", retain="1s", grace="1s"),
)

#: The tasks of the background that look at each topic or stream. GC and erasure are in the commands.
TASKS = ("disk", "upkeep", "release", "offload", "sync", "streams")

_LISTED = "its answer has each of them"
_ALL = "its work is on the whole remote, and a volume has some objects of its own"
_NAMES = "a volume has one name, so that each other name of the topic is looked at (NAME-4)"
_SHOWN_BY = "its preview tells which branches would still show the records"
_COPIES = "no copy on this disk goes before its copy in the remote was read back (ATTEMPT-3)"
_CHECKPOINT = "a seal makes a checkpoint, which writes each topic that has changed since the last one"

#: What grows with what, and why it may.
GROWS: Mapping[tuple[str, Dimension], Mapping[Measure, str]] = {
    ("GET /topics", TOPICS): {CALLS: _LISTED},
    ("GET /topics", STREAMS): {CALLS: _LISTED},
    ("topic/list", TOPICS): {CALLS: _LISTED},
    ("topic/list", STREAMS): {CALLS: _LISTED},
    ("status", TOPICS): {CALLS: _LISTED},
    ("status", STREAMS): {CALLS: _LISTED, FILES: "it reads the time of the oldest record that the remote lacks"},
    ("log", COMMITS): {CALLS: _LISTED},
    ("segments", COMMITS): {CALLS: _LISTED},
    ("branch/list", BRANCHES): {CALLS: _LISTED, STORE: _LISTED},
    ("points", BRANCHES): {CALLS: _LISTED, STORE: _LISTED},
    ("branch/diff", COMMITS): {STORE: "it counts the commits since the fork"},
    ("branch/rename", BRANCHES): {STORE: _NAMES},
    ("branch/undelete", BRANCHES): {STORE: _NAMES},
    ("branch/promote", BRANCHES): {STORE: _NAMES},
    ("undo", BRANCHES): {STORE: _NAMES},
    ("branch/delete", BRANCHES): {STORE: _SHOWN_BY},
    ("delete", BRANCHES): {STORE: _SHOWN_BY},
    ("compact", COMMITS): {STORE: "it merges the small segments", FILES: "it merges the small segments"},
    ("POST /topics/{topic}/queues/{queue}/claims", COMMITS): {FILES: "it reads a page ahead, here of small segments"},
    ("reset", COMMITS): {STORE: _COPIES, FILES: "it takes the topic off this disk"},
    ("seal", STREAMS): {FILES: _CHECKPOINT},
    ("POST /topics/{topic}/rpc/{command:path}", STREAMS): {FILES: _CHECKPOINT},
    **{
        (f"router/{each}", about): {CALLS: "the worker of the router goes on in the loop meanwhile"}
        for each in ("create", "pause", "resume", "delete")
        for about in Dimension
    },
    **{
        (kind, about): {CALLS: _ALL, STORE: _ALL}
        for kind in ("cost", "gc", "gc/plan", "gc/apply", "gc/explain", "upgrade")
        for about in (TOPICS, COMMITS, BRANCHES)
    },
}


def _measured(directory: Path, dimension: Dimension, number: int) -> list[tuple[str, dict[Measure, int]]]:
    """Return the work of each request in a directory with so many more of one thing."""
    world = World(directory)
    try:
        world.grow(dimension, number)
        costs = [(request.kind, world.ask(request)) for request in REQUESTS]
        costs += [(f"the look of {task}", world.look(task)) for task in TASKS]
    finally:
        world.close()
    return costs


#: Routes of a daemon that is a proxy. tests/offload/daemon/test_proxy.py and test_forward.py count their requests.
OF_PROXIES = {"GET /objects", "GET /objects/{key:path}", "GET /topics/{topic}/forward"}


def test_each_route_and_each_command_has_its_cost_counted(tmp_path: Path) -> None:
    world = World(tmp_path / "data")
    routes = [route for route in world.app.routes if isinstance(route, Route)]
    world.close()
    kinds = {f"{method} {route.path}" for route in routes for method in (route.methods or ()) if method != "HEAD"}
    kinds = {kind for kind in kinds if not kind.endswith(" /rpc/{command:path}")} | {*COMMANDS}
    assert {request.kind for request in REQUESTS if request.method != "HEAD"} == kinds - OF_PROXIES
    assert {kind for kind, _ in GROWS} <= kinds


def _grown(directory: Path, dimension: Dimension, number: int) -> dict[tuple[str, Measure], str]:
    """Return what grows with one thing, beyond what the list allows: a call and a half, or half a request, for each."""
    few = _measured(directory / "few", dimension, number)
    many = _measured(directory / "many", dimension, 2 * number)
    return {
        (kind, measure): f"{before[measure]} -> {after[measure]}"
        for (kind, before), (_, after) in zip(few, many, strict=True)
        for measure in Measure
        if after[measure] - before[measure] >= number * (1.5 if measure is CALLS else 0.5)
        and measure not in GROWS.get((kind, dimension), {})
    }


@pytest.mark.parametrize(
    "dimension",
    [each if each is Dimension.TOPICS else pytest.param(each, marks=pytest.mark.long) for each in Dimension],
)
@pytest.mark.parametrize("number", [16, pytest.param(100, marks=pytest.mark.soak(part=3))])
def test_the_cost_of_a_request_does_not_grow_without_a_reason(
    tmp_path: Path, dimension: Dimension, number: int
) -> None:
    """A command wakes the loop as often as its thread finds it asleep. So what grows has to grow three times."""
    grown = _grown(tmp_path, dimension, number)
    for again in range(2):
        if grown:
            grown = {
                each: told for each, told in _grown(tmp_path / str(again), dimension, number).items() if each in grown
            }
    assert grown == {}
    what = f"{len(REQUESTS)} requests and {len(TASKS)} tasks of the background"
    tell(f"{what}, beside {number} and {2 * number} {dimension.value}: none grows without a reason")


#: The way to send values, one value, and whether the body is taken as a whole.
BODIES = {
    "values": ("POST", "/topics/t/records", VALUES, encode_values([b""]), b""),
    "lines": ("POST", "/topics/t/records", LINES, b"x\n", b""),
    "lines, all or none": ("POST", "/topics/t/records", LINES, b"x\n", b"whole=1"),
    "JSON lines": ("POST", "/topics/t/records", JSON_LINES, b'{"value":""}\n', b""),
    "JSON lines, all or none": ("POST", "/topics/t/records", JSON_LINES, b'{"value":""}\n', b"whole=1"),
    "messages": ("POST", "/streams/s", JSON, b"1,", b""),
    "messages of a new stream": ("PUT", "/streams/new-%d", JSON, b"1,", b""),
}


@pytest.mark.parametrize("form", BODIES)
def test_the_loop_does_nothing_for_each_value_of_a_large_body(tmp_path: Path, form: str) -> None:
    method, path, kind, one, query = BODIES[form]
    world, calls = World(tmp_path / "data"), []
    for number in (15_000, 30_000):
        body = b"[" + (one * number)[:-1] + b"]" if kind == JSON else one * number
        to = path.replace("%d", str(number))
        calls.append(world.ask(Request(form, method, to, body, (kind,), query))[CALLS])
    world.close()
    assert calls[1] - calls[0] < 1_500, f"{calls} calls: one for each value makes them 15,000 more"


def test_an_append_does_no_more_for_more_values_while_it_holds_the_lock(tmp_path: Path) -> None:
    calls = []
    with seglog.open(tmp_path / "log") as log:
        topic, lock = log.topic("t"), engine_of(log).committer.raw_lock
        for number in (20_000, 40_000):
            append = functools.partial(topic.append, [b"%d" % each for each in range(number)])
            calls.append(loop_calls(append, lambda: owned(lock)))
    assert calls[1] < calls[0] + 100, f"{calls} calls; the encoding makes one for some values"
