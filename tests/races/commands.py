"""Commands that meet in one daemon: each of `offload.operations.command`, with the topic `t`.

The topic has two segments in the remote and a sealed one that is only here, the branches `f` and `g`, a deleted branch
`h`, a tag `v`, a lease, and a plan of GC that is due.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from catalog.format.keys import plan_of, plans_prefix
from offload.operations.command import COMMANDS as REGISTRY
from offload.operations.command import SHOWN_TYPE
from offload.operations.result_json import PROGRESS, kind_of, result_of
from seglog.client.answers import failure_of, refusal_of
from tests.races.answers import said
from tests.races.daemon import Answer, Daemon, Request
from tests.races.export import exported
from tests.races.remote import ERRORS, state_of_remote
from tests.races.routes import RECORDS, Call, Routes, post, rpc
from tests.races.serial import Result

__all__ = ["COMMANDS", "Commands", "paths_of"]


def _export(daemon: Daemon) -> object:
    def call(path: str, values: Mapping[str, Any]) -> Iterator[Any]:
        command = REGISTRY[path]
        request = rpc(f"/rpc/{path}", **command.arguments(values))
        answer = daemon.ask(
            Request(request.method, request.path, request.body, {**request.headers, "accept": SHOWN_TYPE})
        )
        if answer.status >= 400:
            raise refusal_of(answer.status, answer.body)
        stream = io.BytesIO(answer.body)
        kinds = {kind_of(each): each for each in command.results.values()}
        while line := stream.readline():
            said = json.loads(line)
            if "kind" not in said:
                raise failure_of(said["error"])
            if said["kind"] != PROGRESS:
                yield result_of(kinds[said["kind"]], said, stream.read)

    daemon.ask(_t("offload"))
    try:
        return exported(call, "t")
    except ERRORS as error:
        return ["refused", error.exit_code]


def _apply_the_plan(daemon: Daemon) -> object:
    number = max(filter(None, map(plan_of, daemon.world.objects.list(plans_prefix()))), default=1)
    answer = daemon.ask(rpc("/rpc/gc/apply", number=number, retain="0", grace="0"))
    # A name that is put after the look of GC keeps its objects back one by one.
    told = _status(answer)
    is_kept = told == [409, "Conflict"] and b"something may need now" in answer.body
    return "done" if is_kept or told == [200, {}, ""] else told


def _release_the_lease(daemon: Daemon) -> object:
    return _status(daemon.ask(rpc("/rpc/pin/release", name=daemon.known["pin"])))


def _refresh_the_lease(daemon: Daemon) -> object:
    return _status(daemon.ask(rpc("/rpc/pin/refresh", name=daemon.known["pin"], **{"for": "2d"})))


def _t(path: str, **given: Any) -> Request:
    return rpc(f"/topics/t/rpc/{path}", **given)


_CARRY = _t("branch/promote", name="f", keep="kept", carry=True)
CHANGES: dict[str, Call] = {
    "append": post(RECORDS, b"new"),
    "append to a branch": post("/topics/t@f/records", b"new"),
    "delete": _t("delete", before=2, yes=True),
    "evict": _t("evict", before=2, yes=True),
    "truncate": rpc("/rpc/truncate", topic="t", **{"from": 3}, yes=True),
    "seal": _t("seal"),
    "offload": _t("offload"),
    "offload and drop hot": _t("offload", drop_hot=True),
    "compact": _t("compact"),
    "compact and erase": _t("compact", erase=True, yes=True),
    "gc": rpc("/rpc/gc", retain="0", grace="0"),
    "gc/plan": rpc("/rpc/gc/plan", retain="0"),
    "gc/apply": _apply_the_plan,
    "upgrade": rpc("/rpc/upgrade", yes=True),
    "pause": _t("pause"),
    "resume": _t("resume"),
    "retry": _t("retry"),
    "sync": _t("sync"),
    "sync and push": _t("sync", push=True),
    "sync and fetch": _t("sync", fetch=True),
    "reset": _t("reset", discard=True, yes=True),
    "takeover": _t("takeover"),
    "resolve and pin": _t("resolve", to="lsn:1", pin="1h"),
    "restore": _t("restore", to="lsn:1", **{"as": "back"}),
    "copy": _t("copy", new="copied"),
    "uploads": rpc("/rpc/uploads", abort=True, older_than="1h"),
    "branch/create": _t("branch/create", name="made"),
    "branch/delete": _t("branch/delete", name="g", yes=True),
    "branch/undelete": _t("branch/undelete", name="h"),
    "branch/rename": _t("branch/rename", name="g", new="other"),
    "branch/promote": _t("branch/promote", name="f", keep="kept", leave=True),
    "promote and carry": _CARRY,
    "tag/create": _t("tag/create", name="named"),
    "tag/delete": _t("tag/delete", name="v"),
    "cursor/create": _t("cursor/create", name="made"),
    "cursor/reset": _t("cursor/reset", name="c", to="head"),
    "cursor/delete": _t("cursor/delete", name="c"),
    "queue/create": _t("queue/create", name="made"),
    "queue/set": _t("queue/set", name="q", max_deliver=2),
    "queue/redrive": _t("queue/redrive", name="q"),
    "queue/delete": _t("queue/delete", name="q"),
    "router/create": rpc("/rpc/router/create", name="made", source="t", destination="made"),
    "router/delete": rpc("/rpc/router/delete", name="r"),
    "router/pause": rpc("/rpc/router/pause", name="r"),
    "router/resume": rpc("/rpc/router/resume", name="r"),
    "pin/refresh": _refresh_the_lease,
    "pin/release": _release_the_lease,
    "undo": rpc("/rpc/undo"),
    "undo a commit": rpc("/rpc/undo", change="t", commit="lsn:3"),
    "undo a delete": rpc("/rpc/undo", change="t", commit="delete:2"),
    "topic/create": _t("topic/create"),
    "topic/set": _t("topic/set", window="1d"),
    "topic/delete": _t("topic/delete", detach=True, yes=True),
}
READS: dict[str, Call] = {
    "offload and export": _export,
    "read": _t("read"),
    "read the past": _t("read", at="lsn:1"),
    "tail": _t("tail"),
    "gc/explain": rpc("/rpc/gc/explain", key="refs/t/f"),
    "cost": rpc("/rpc/cost"),
    "status": _t("status"),
    "log": _t("log"),
    "show": _t("show", target="lsn:1"),
    "diff": rpc("/rpc/diff", left="t", right="t@f"),
    "segments": _t("segments"),
    "points": _t("points"),
    "resolve": _t("resolve", to="head"),
    "branch/list": _t("branch/list"),
    "branch/diff": rpc("/rpc/branch/diff", left="t", right="t@f"),
    "tag/list": _t("tag/list"),
    "cursor/list": _t("cursor/list"),
    "queue/list": _t("queue/list"),
    "queue/show": _t("queue/show", name="q"),
    "router/list": rpc("/rpc/router/list"),
    "pin/list": rpc("/rpc/pin/list"),
    "oplog": rpc("/rpc/oplog"),
    "topic/show": _t("topic/show"),
    "topic/list": rpc("/rpc/topic/list"),
}
COMMANDS: dict[str, Call] = {**CHANGES, **READS}

_BEGINNING = (
    post(RECORDS, b"a"),
    post(RECORDS, b"b"),
    _t("seal"),
    _t("offload"),
    post(f"{RECORDS}?tag=eu", b"c"),
    _t("seal"),
    _t("offload"),
    _t("delete", tag="eu", yes=True),
    _t("branch/create", name="f"),
    _t("branch/create", name="g"),
    _t("branch/create", name="h"),
    post("/topics/t@h/records", b"lost"),
    rpc("/rpc/seal", topic="t@h"),
    rpc("/rpc/offload", topic="t@h"),
    rpc("/rpc/topic/delete", topic="t@h", detach=True, yes=True),
    _t("branch/delete", name="h", yes=True),
    _t("tag/create", name="v", at="lsn:2"),
    _t("cursor/create", name="c", at="seq:1"),
    _t("queue/create", name="q", dead_letter="letters"),
    rpc("/rpc/router/create", name="r", source="t", destination="copies"),
    _t("resolve", to="lsn:1", pin="1d"),
    rpc("/rpc/gc/plan", retain="0"),
    post(RECORDS, b"d"),
    _t("seal"),
)

#: The errors of a change of a name that met another one.
LOST_NAMES = ("KeyChanged", "VolumeHasName", "NotUndone")

#: Reads of records, which show one state. Of the other answers only the status counts: a list or a report may begin
#: before another command and end after it.
_OF_ONE_STATE = ("/read", "/tail", "/diff", "/resolve", "/records")
_COUNTS = ("records", "dropped", "carried")
_NO_PLAN = [404, "Missing"]
_OF_CACHES = ("hot_first_seq", "hot_bytes")
_RANDOM = ("volume", "hash", "sid", "pin", "pinned_until", "next_commit")


@dataclass
class Commands(Routes):
    """A scene: commands of clients of one daemon."""

    beginning: tuple[Request, ...] = _BEGINNING

    def prepare(self, daemon: Daemon, pair: tuple[str, str], order: str) -> None:
        if order.startswith("o"):
            daemon.ask(_t("offload"))
        if order.startswith("c"):  # the undo takes the names back, and the branch keeps the carried record
            for call in (_CARRY, rpc("/rpc/undo")):
                assert daemon.ask(call).status == 200
        if "undo a delete" in pair:  # which no commit has yet
            assert daemon.ask(_t("delete", **{"from": 4}, yes=True)).status == 200
        [line] = daemon.ask(rpc("/rpc/pin/list")).body.splitlines()
        daemon.known["pin"] = json.loads(line)["pin"]

    def told(self, call: Request, answer: Answer) -> object:
        return (
            said(answer, is_change=True, but=(*_OF_CACHES, *_RANDOM))
            if call.path.endswith(_OF_ONE_STATE)
            else _status(answer)
        )

    def state_of(self, daemon: Daemon) -> dict[str, object]:
        """Return what readers of the daemon find, and what a new machine finds in the remote once all is offloaded."""
        daemon.ask(_t("offload"))
        return {
            "topics": said(daemon.ask(Request("GET", "/topics"))),
            "records": said(daemon.ask(Request("GET", f"{RECORDS}?from=1&gaps=1"))),
            "bounds": said(daemon.ask(Request("GET", "/topics/t/index_bounds")), but=_OF_CACHES),
            "described": said(daemon.ask(_t("topic/show")), but=_OF_CACHES),
            **{f"remote {name}": value for name, value in state_of_remote(daemon.world, "t").items()},
        }

    def allows(self, pair: tuple[str, str], met: Result, serial: Callable[[str], Result]) -> str:
        """Return why a result is fine that no order gives.

        a call is refused for the race   it changed nothing that readers see, so the other one is as alone. `gc` removes
                                         a plan that is done, and `gc apply` may look for it then. An undo may not find
                                         the topic whose name a promotion moves just then, and ends with 404
        the same call twice              each deletes what is still there, so both are done
        an offload first                 a command offloads what the directory has, as a step of its own
        a state beside an undo           an undo of a delete that waits commits it as a step of its own (PENDING-1)
        a read beside a carry            a promotion carries records to its branch as a step of its own, too
        a promotion that begins again    each round of it raises the epoch
        a read beside an eviction        it had begun at the evicted record, so it is told of it (READ-4)
        undo beside a change of a name   it takes the change back before its end, and so the change is refused
        two changes of one name          each finds what the other one has put, takes its own back and is refused, as
                                         catalog.refs.ref_store promises (NAME-1)
        """
        is_alike = pair[0] == pair[1] in ("gc/apply", "branch/delete", "tag/delete")
        if is_alike and met.answers == serial("a").answers[:1] * 2 and met.state == serial("a").state:
            return "two calls made one change"
        counts = [[200, {"records": count}, ""] for count in (0, 1)]
        is_undone_once = pair == ("undo a delete",) * 2 and sorted(met.answers, key=str) == counts
        if is_undone_once and met.state == serial("a").state:
            return "two calls made one change"
        if any(met == serial(order) for order in ("oab", "oba")):
            return "a command had offloaded before the other one"
        is_promoted = any(each.startswith("promote") for each in pair)
        if is_promoted and any(_but_epoch(met) == _but_epoch(serial(order)) for order in ("ab", "ba")):
            return "a promotion began again, because the other call changed the topic meanwhile"
        if "undo a delete" in pair:
            first, second = ("ab", "ba") if pair[1] == "undo a delete" else ("ba", "ab")
            other_first, undo_first = serial(first), serial(second)
            number = pair.index("undo a delete")
            seen = [serial(order).answers[1 - number] for order in (first, f"o{first}")]
            made = {name for name, state in met.state.items() if state != undo_first.state.get(name)}
            is_made = all(name.startswith("remote ") and met.state[name] == other_first.state[name] for name in made)
            is_undone = met.answers[number] == undo_first.answers[number]
            if is_made and is_undone and met.answers[1 - number] in seen:
                return "an undo had committed its delete before the other call, and took it back after it"
        if pair == ("evict", "read"):
            evicted, told = serial("ab"), met.answers[1]
            gap, *left = told[2] if len(told) == 3 else [{}]
            is_told = gap == {"schema": 1, "kind": "gap", "gap_from": 1, "gap_to": 1}
            if is_told and Result((met.answers[0], [*told[:2], left]), met.state) == evicted:
                return "a read had begun at the record that an eviction then took, and was told of it"
        for number, alone in enumerate("ab"):
            other, one = met.answers[1 - number], serial(alone)
            is_refused = isinstance(other, list) and (other[0] in (409, 503, "refused") or other == _NO_PLAN)
            is_refused |= is_promoted and pair[1 - number] == "undo a delete" and other == [404, "NoSuchTopic"]
            if is_refused and met.answers[number] == one.answers[number] and met.state == one.state:
                return "one call was refused for the other, and changed nothing"
            if pair[number] == "promote and carry" and pair[1 - number] in READS and met.state == one.state:
                between = serial("cb" if number == 0 else "ca").answers[1 - number]
                if (met.answers[number], other) == (one.answers[number], between):
                    return "a promotion had carried records before the read, and changed the names after it"
            undone = serial("ab" if number else "ba")  # the other call, and then the undo
            is_taken_back = is_refused and pair[number] == "undo" and other[1] in LOST_NAMES
            if is_taken_back and (met.answers[number], met.state) == (undone.answers[number], undone.state):
                return "an undo took the other call back before its end"
        are_lost = all(isinstance(each, list) and each[1] in LOST_NAMES for each in met.answers)
        if are_lost and met.state == serial("").state:
            return "two changes of one name were refused for each other, and changed nothing"
        return ""


def _but_epoch(result: Result) -> tuple[object, object]:
    status, headers, lines = result.state["described"]  # type: ignore[misc]
    described = [status, headers, [{**line, "epoch": None} if isinstance(line, dict) else line for line in lines]]
    return result.answers, {**result.state, "described": described}


def paths_of(calls: Mapping[str, Call]) -> set[str]:
    """Return the commands that the calls run."""
    found = set[str]()
    for name, call in calls.items():
        _, _, path = call.path.partition("/rpc/") if isinstance(call, Request) else ("", "", name)
        found.update({path} & {*REGISTRY})
    return found


def _status(answer: Answer) -> object:
    """Return the status, the records that a change took away or brought, and the title of the error."""
    if answer.status >= 400:
        return said(answer)
    *_, end = [json.loads(line) for line in (b"{}", *answer.body.splitlines())]
    counts = {name: end[name] for name in _COUNTS if name in end}
    return [answer.status, counts, end["error"]["error"] if "error" in end else ""]
