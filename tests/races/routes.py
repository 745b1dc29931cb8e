"""Calls over HTTP that meet in one daemon (`tests.races.daemon`): each of its routes, with the topic `t` and the stream
`s`. The commands are in `tests.races.commands`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.races.answers import said
from tests.races.daemon import LAMINARMQ, Answer, Daemon, Request
from tests.races.meeting import meet
from tests.races.serial import Result
from tests.races.turns import Turns
from tests.races.world import BEGINNING, Beginning, World

__all__ = ["RECORDS", "STREAMS", "TOKENS", "TOPICS", "Call", "Routes", "post", "rpc"]

Call = Request | Callable[[Daemon], object]

BYTES = {"content-type": "application/octet-stream"}
TEXT = {"content-type": "text/plain"}
JSON = {"content-type": "application/json"}
_LONG = "n" * 100  # longer than the part of a path that the name of a branch has

LINES = {"content-type": "application/vnd.seglog.lines"}
_FORK = {"stream-forked-from": "/streams/s", **TEXT}


def _batch(number: int) -> dict[str, str]:
    return {**LINES, "producer-id": "p", "producer-epoch": "0", "producer-seq": str(number)}


def post(path: str, body: bytes, headers: dict[str, str] = BYTES) -> Request:
    return Request("POST", path, body, headers)


def rpc(path: str, **given: Any) -> Request:
    return Request("POST", path, json.dumps(given).encode(), JSON)


RECORDS = "/topics/t/records"
_FOLLOW_S = 3.0


def _append_to_the_incarnation(daemon: Daemon) -> object:
    """Append a batch to the incarnation that the topic had before the race."""
    known = {"seglog-if-incarnation": daemon.known["incarnation"]}
    return said(daemon.ask(post(RECORDS, b"ten\n", {**_batch(0), **known})), is_change=True)


def _look_at_it(daemon: Daemon) -> object:
    """Ask each probe. Only their statuses are those of any order: metrics count what is under way."""
    paths = ("/healthz", "/readyz", "/metrics", "/openapi.json")
    return [daemon.ask(Request("GET", path)).status for path in paths]


TOPICS: dict[str, Call] = {
    "append": post(RECORDS, b"one", BYTES),
    "append two": post(f"{RECORDS}?whole=1", b"two\nthree\n", LINES),
    "append as producer": post(RECORDS, b"four\nfive\n", _batch(0)),
    "append next as producer": post(RECORDS, b"six\n", _batch(1)),
    "append by key": post(RECORDS, b"seven\n", {**LINES, "idempotency-key": "k"}),
    "append if head": post(RECORDS, b"eight\n", {**LINES, "seglog-if-head": "3"}),
    "truncate": rpc("/topics/t/rpc/truncate", seq=3),
    "delete": rpc("/topics/t/rpc/delete", before=2, yes=True),
    "delete topic": rpc("/topics/t/rpc/topic/delete", yes=True),
    "create topic": rpc("/topics/t/rpc/topic/create"),
    "create another": rpc("/topics/n/rpc/topic/create"),
    "append to another": post("/topics/n/records", b"nine\n", LINES),
    "seal": rpc("/topics/t/rpc/seal"),
    "read": Request("GET", f"{RECORDS}?from=1"),
    "read by command": rpc("/topics/t/rpc/read"),
    "follow": Request("GET", f"{RECORDS}?from=1&follow=1", leaves_after_s=_FOLLOW_S),
    "append to the incarnation": _append_to_the_incarnation,
    "read the tail": Request("GET", f"{RECORDS}?tail=2", b"", {"accept": "application/vnd.seglog.values.seqs"}),
    "wait for records": Request("GET", f"{RECORDS}?from=4&wait_s=2", leaves_after_s=_FOLLOW_S),
    "follow as events": Request(
        "GET", f"{RECORDS}?from=1&follow=1", b"", {"accept": "text/event-stream"}, leaves_after_s=_FOLLOW_S
    ),
    "read one": Request("GET", f"{RECORDS}/3"),
    "bounds": Request("HEAD", RECORDS),
    "bounds as JSON": Request("GET", "/topics/t/index_bounds"),
    "names": Request("GET", "/topics"),
    "probes": _look_at_it,
    "append by laminarmq": Request("POST", "/records", b"eleven", BYTES, port=LAMINARMQ),
    "truncate by laminarmq": Request("POST", "/rpc/truncate", b'{"truncate_index": 1}', JSON, port=LAMINARMQ),
    "read by laminarmq": Request("GET", "/records/2", port=LAMINARMQ),
    "bounds by laminarmq": Request("GET", "/index_bounds", port=LAMINARMQ),
}
STREAMS: dict[str, Call] = {
    "make": Request("PUT", "/streams/new", b"m", TEXT),
    "make otherwise": Request("PUT", "/streams/new", b"[1]", JSON),
    "append": Request("POST", "/streams/s", b"one", TEXT),
    "append with a number": Request("POST", "/streams/s", b"two", {**TEXT, "stream-seq": "5"}),
    "close": Request("POST", "/streams/s", b"", {"stream-closed": "true"}),
    "append and close": Request("POST", "/streams/s", b"end", {**TEXT, "stream-closed": "true"}),
    "delete": Request("DELETE", "/streams/s"),
    "delete the fork": Request("DELETE", "/streams/f"),
    "append to the fork": Request("POST", "/streams/f", b"own", TEXT),
    "fork": Request("PUT", f"/streams/{_LONG}a", b"a", _FORK),
    "fork beside": Request("PUT", f"/streams/{_LONG}b", b"b", _FORK),
    "read": Request("GET", "/streams/s?offset=-1"),
    "wait": Request("GET", "/streams/s?offset=now&live=long-poll", leaves_after_s=_FOLLOW_S),
    "read as events": Request("GET", "/streams/s?offset=-1&live=sse", leaves_after_s=_FOLLOW_S),
    "look": Request("HEAD", "/streams/s"),
}


def _revoke(daemon: Daemon) -> object:
    """Take the reader's token away, and then append what the reader must not see."""
    daemon.allow("boss")
    daemon.reload()
    return daemon.ask(post(RECORDS, b"secret", BYTES)).status


_READER = "reader"
TOKENS: dict[str, Call] = {
    "revoke": _revoke,
    "follow": Request("GET", f"{RECORDS}?from=1&follow=1", token=_READER, leaves_after_s=_FOLLOW_S),
    "follow as events": Request(
        "GET", f"{RECORDS}?from=1&follow=1", b"", {"accept": "text/event-stream"}, _READER, _FOLLOW_S
    ),
    "wait for records": Request("GET", f"{RECORDS}?from=4&wait_s=2", token=_READER, leaves_after_s=_FOLLOW_S),
    "follow by command": Request("POST", "/topics/t/rpc/read", b'{"follow": true}', JSON, _READER, _FOLLOW_S),
    "watch the daemon": Request("GET", "/daemon/events", b"", {}, _READER, _FOLLOW_S),
    "wait for a stream": Request(
        "GET", "/streams/s?offset=now&live=long-poll", b"", {}, _READER, leaves_after_s=_FOLLOW_S
    ),
}

_BEGINNING = (
    post(RECORDS, b"a", BYTES),
    post(f"{RECORDS}?tag=eu", b"b", BYTES),
    post(RECORDS, b"c", BYTES),
    Request("PUT", "/streams/s", b"x", TEXT),
    Request("POST", "/streams/s", b"y", TEXT),
    Request("PUT", "/streams/f", b"", _FORK),
)
_TOPICS = ("t", "n")
_PATHS = ("s", "f", "new", f"{_LONG}a", f"{_LONG}b")


# ---------------------------------------------------------------- the scene


@dataclass
class Routes:
    """A scene: calls of clients of one daemon, which has just been started."""

    name: str
    calls: Mapping[str, Call]
    folder: Path
    beginning: Sequence[Request] = _BEGINNING
    _begun: list[Beginning] = field(default_factory=list)

    def run(self, pair: tuple[str, str], order: str, seed: int) -> Result:
        if not self._begun:
            self._begun.append(self._begin())
        turns = Turns(seed)
        world = World(turns, self._begun[0], self.folder)
        return turns.run(lambda: self._main(world, pair, order))  # type: ignore[no-any-return]

    def allows(self, pair: tuple[str, str], met: Result, serial: Callable[[str], Result]) -> str:
        return allowed(pair, met, serial)

    def _begin(self) -> Beginning:
        turns = Turns(BEGINNING)
        world = World(turns, Beginning(), self.folder)
        world.path("d").mkdir(exist_ok=True)  # `status` asks the system how much room it has

        def main() -> Beginning:
            with world.databases():
                with self._daemon(world).running() as daemon:
                    for request in self.beginning:
                        answer = daemon.ask(request)
                        assert answer.status in (200, 201, 204), answer
                return world.end()

        return turns.run(main)  # type: ignore[no-any-return]

    def _daemon(self, world: World) -> Daemon:
        return Daemon(world, self.folder / "tokens")

    def _main(self, world: World, pair: tuple[str, str], order: str) -> Result:
        turns = world.turns
        with world.databases():
            with self._daemon(world).running() as daemon:
                self.prepare(daemon, pair, order)
                answers = meet(turns, [lambda name=name: self._call(daemon, name) for name in pair], order.lstrip("oc"))
                turns.sleep(_SWEEP_S)
                daemon.sweep()
                state = self.state_of(daemon)
            if order == "met" and turns.random.random() < 0.2:
                with self._daemon(world).running() as daemon:
                    again = self.state_of(daemon)
                assert again == state, f"a restart changes what is there:\nbefore: {state}\nafter:  {again}"
        return Result(answers, state)

    def _call(self, daemon: Daemon, name: str) -> object:
        call = self.calls[name]
        if not isinstance(call, Request):
            return call(daemon)
        return self.told(call, daemon.ask(call))

    def prepare(self, daemon: Daemon, pair: tuple[str, str], order: str) -> None:
        """Let the clients know what they know before the race."""
        if "append to the incarnation" in pair:
            daemon.known["incarnation"] = daemon.ask(Request("HEAD", RECORDS)).headers["seglog-incarnation"]

    def told(self, call: Request, answer: Answer) -> object:
        """Return what an answer says, without what no order decides."""
        if call.port and answer.status >= 400:
            return "refused"  # which error it is depends on the step that meets the other call
        return said(answer, is_change=call.method == "POST")

    def state_of(self, daemon: Daemon) -> dict[str, object]:
        """Return what readers find of each topic and each stream."""
        return state_of(daemon)


_SWEEP_S = 30.0


def state_of(daemon: Daemon) -> dict[str, object]:
    """Return what readers find of each topic and each stream."""
    found: dict[str, object] = {"topics": said(daemon.ask(Request("GET", "/topics")))}
    for name in _TOPICS:
        found[name] = said(daemon.ask(Request("GET", f"/topics/{name}/records?from=1&gaps=1")))
        found[f"bounds of {name}"] = said(daemon.ask(Request("GET", f"/topics/{name}/index_bounds")))
    for path in _PATHS:
        found[path[-3:]] = [
            said(daemon.ask(Request("HEAD", f"/streams/{path}"))),
            said(daemon.ask(Request("GET", f"/streams/{path}?offset=-1"))),
        ]
    return found


_FREE = {"deleted": None, "number": None, "undo": None}  # of a delete beside another change


def allowed(pair: tuple[str, str], met: Result, serial: Callable[[str], Result]) -> str:
    """Return why a result is fine that no order gives. These are all differences that a race may make:

    a follower lost its token   its answer ends after any of its records, or within a line (REVOKE-3)
    a delete beside another change   it counts the records beside that, says null beside a truncation, and has a number
                                though another delete took its records
    a stream is deleted         its events end after any of them
    a tail beside a truncation  the read counts back from the head that it saw, and finds what is left
    one truncation twice        both find the records there
    """
    known = [serial("ab"), serial("ba")]
    if pair in (
        ("delete", "read as events"),
        ("truncate", "read the tail"),
        ("read the tail", "truncate by laminarmq"),
    ):
        number = 0 if pair[0] == "read the tail" else 1
        whole = [one.answers[number][2] for one in known if len(one.answers[number]) == 3]
        left = met.answers[number][2] if len(met.answers[number]) == 3 else None
        is_part = any(left is not None and str(left).strip("[]' ") in str(each) for each in whole)
        if is_part and any(
            met.state == one.state and met.answers[1 - number] == one.answers[1 - number] for one in known
        ):
            return "a read ended within what the other call took away"
    if pair == ("truncate by laminarmq",) * 2 and met.answers[0] == met.answers[1] and met.state == known[0].state:
        return "two calls made one truncation"
    for order in ("ab", "ba"):
        one = serial(order)
        if met.state == one.state and all(map(_may_be, met.answers, one.answers)):
            return "a follower ends within its records, or the count of deleted records is of another moment"
    return ""


def _may_be(met: Any, one: Any) -> bool:
    if met == one:
        return True
    if not (isinstance(met, list) and isinstance(one, list) and met[0] == one[0] == 200 and met[1] == one[1]):
        return False
    if not isinstance(met[2], list):
        return False
    if met[2] and one[2] and "deleted" in met[2][0]:
        told, found = ({**result[2][0], **_FREE} for result in (one, met))
        return bool(told == found)
    is_revoked = one[2][-1:] in ([{"end": "revoked"}], [{"reason": "revoked"}])
    records = [each for each in met[2] if isinstance(each, dict) and each not in one[2][-1:]]
    return is_revoked and records == one[2][: len(records)]
