"""The commands of the daemon that a program calls, as requests, and their results. No I/O.

A client asks for the lines that a command shows to people: they have all fields, and the progress of a long command
keeps the connection alive. The client does not repeat a command after a lost answer, because records may have come.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

from seglog.base.dataclasses import dataclass
from seglog.client.answers import error_of_line, unfit
from seglog.client.bodies import object_of
from seglog.client.connections import Answer, Request
from seglog.values.deletes import DeleteWhere, given_where
from seglog.values.protocols import DeleteArguments, Removed
from seglog.values.seq_set import SeqSet

_SHOWN_TYPE: Final = "application/vnd.seglog.results"
_SEQ_MAX: Final = 10**18 - 1  # the command takes 18 digits, and no topic has such a seq
_YEAR_10000_MS: Final = 253_402_300_800_000
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class RemoteOffloaded:
    """The result of an offload. `released_seq` is the last seq whose hot copy was deleted; 0 if none was."""

    offloaded_seq: int
    released_seq: int
    unsealed_records: int


@dataclass(frozen=True, slots=True)
class RemoteRestored:
    """A new branch, and its contents. `last_seq` and `last_ts_ms` are 0 if the branch is empty."""

    records: int
    last_seq: int
    last_ts_ms: int


@dataclass(frozen=True, slots=True)
class RemoteBranch:
    """A branch of a topic. `deleted_at_ms` is None unless it is deleted."""

    topic: str
    branch: str
    created_at_ms: int
    deleted_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Asking(Generic[_Result]):
    """A request, and the function that makes the result of its lines."""

    request: Request
    result_of: Callable[[list[dict[str, Any]]], _Result]

    def result(self, answer: Answer) -> _Result:
        """Return the result. Raise the error of the last line."""
        try:
            lines = [object_of(line) for line in answer.body.splitlines()]
        except ValueError as error:
            raise unfit(self.request, answer) from error
        if lines and "error" in lines[-1]:
            raise error_of_line(lines[-1]["error"])
        try:
            return self.result_of([line for line in lines if line.get("kind") != "progress"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise unfit(self.request, answer) from error


def delete_of(topic: str, conditions: DeleteArguments, message: str = "") -> Asking[Removed]:
    """Return a delete. Raise what the log raises for conditions that no delete takes."""
    since_ms, until_ms = conditions.get("since_ms"), conditions.get("until_ms")
    given = {
        **_seqs(given_where(conditions)),
        "since": None if since_ms is None else _time(since_ms),
        "until": None if until_ms is None else _time(until_ms),
        "tag": conditions.get("tag"),
        "grep": conditions.get("grep"),
        "epoch": conditions.get("epoch"),
    }
    return _asking("delete", topic, _removed("deleted"), **given, yes=True, message=message)


def evict_of(topic: str, before: int, message: str = "") -> Asking[Removed]:
    before = max(1, before)  # below 1 there is nothing, and the command refuses 0 as mistyped
    return _asking("evict", topic, _removed("evicted"), before=before, yes=True, message=message)


def truncate_of(topic: str, seq: int, message: str = "") -> Asking[Removed]:
    return _asking("truncate", topic, _removed("removed"), **{"from": seq}, yes=True, message=message)


def seal_of(topic: str) -> Asking[None]:
    return _asking("seal", topic, _done)


def offload_of(topic: str, up_to: int | None, *, drop_hot: bool) -> Asking[RemoteOffloaded]:
    def result(lines: list[dict[str, Any]]) -> RemoteOffloaded:
        return RemoteOffloaded(lines[0]["offloaded_seq"], lines[0]["released_seq"], lines[0]["unsealed_records"])

    return _asking("offload", topic, result, up_to=up_to, drop_hot=drop_hot)


def restore_of(topic: str, to: str, name: str, message: str) -> Asking[RemoteRestored]:
    def result(lines: list[dict[str, Any]]) -> RemoteRestored:
        return RemoteRestored(lines[0]["records"], lines[0]["last_seq"], _ms(lines[0]["last_time"]) or 0)

    return _asking("restore", topic, result, **{"to": to, "as": name}, message=message)


def branches_of(topic: str, *, deleted: bool) -> Asking[list[RemoteBranch]]:
    def result(lines: list[dict[str, Any]]) -> list[RemoteBranch]:
        return [
            RemoteBranch(line["topic"], line["branch"], _ms(line["created_at"]) or 0, _ms(line["deleted_at"]))
            for line in lines
        ]

    return _asking("branch/list", topic, result, deleted=deleted)


def change_of(command: str, topic: str, branch: str, **given: Any) -> Asking[None]:
    """Return a change of the name of a branch."""
    return _asking(f"branch/{command}", topic, _done, name=branch, **given)


def _done(lines: list[dict[str, Any]]) -> None:
    lines[0]  # a daemon says what it did


def _asking(
    command: str, topic: str, result_of: Callable[[list[dict[str, Any]]], _Result], **given: Any
) -> Asking[_Result]:
    body = {"topic": topic, **{name: value for name, value in given.items() if value is not None}}
    headers = {"Accept": _SHOWN_TYPE, "Content-Type": "application/json"}
    request = Request("POST", f"/rpc/{command}", headers, json.dumps(body).encode(), is_repeatable=False, topic=topic)
    return Asking(request, result_of)


def _removed(count: str) -> Callable[[list[dict[str, Any]]], Removed]:
    return lambda lines: Removed(lines[0][count], lines[0]["lsn"], lines[0]["waits_for"], lines[0].get("number"))


def _seqs(where: DeleteWhere) -> dict[str, Any]:
    """Return the seqs of a delete as options of the command.

    The command refuses `from` and `before` above the head, which a person mistypes and a program may mean.
    """
    ends = [where.end, None if where.before is None else where.before - 1]
    first, last = max(1, where.start or 1), min([_SEQ_MAX, *(end for end in ends if end is not None)])
    if where.seqs is None and first == 1 <= last:
        return {"from": None if where.start is None else 1, "to": None if ends == [None, None] else last}
    seqs = SeqSet.of([(first, last)] if first <= last else ()) if where.seqs is None else where.seqs.within(first, last)
    return {"seqs": ",".join(f"{begin}-{end}" for begin, end in seqs.ranges())}


def _time(ts_ms: int) -> str:
    """Return the time as the daemon takes it. No record is later than the year 9999."""
    moment = datetime.fromtimestamp(min(ts_ms, _YEAR_10000_MS - 1) // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ts_ms % 1000:03d}Z"


def _ms(text: str | None) -> int | None:
    return None if text is None else round(datetime.fromisoformat(text).timestamp() * 1000)
