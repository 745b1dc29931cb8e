"""The answers of the daemon, as values, and the errors that they mean. No I/O.

A problem (RFC 9457) names the class of its error in `title`. If the client can make that error with all its fields, it
raises the same class as the log in a process of its own. Any other one becomes a `DaemonError`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from seglog import errors
from seglog.base.values import dataclass
from seglog.client.connections import Answer, Lost, Outcome, Request
from seglog.client.requests import INCARNATION
from seglog.errors import DaemonError, DaemonGone, SeglogError
from seglog.values.producer import Appended
from seglog.values.protocols import Bounds

_HINT_UNSENT = "look whether a daemon serves this address, then try again"
_EXIT_CODES = {400: 2, 401: 2, 403: 2, 404: 3, 409: 4, 410: 3, 412: 4, 413: 2, 415: 2, 421: 2, 422: 2, 431: 2}


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to an append of so many records. The seqs are None if there was none.

    `duplicate`: an earlier try had appended them, and this one appended nothing. The topic has
    `next_seq` after the append.
    """

    first_seq: int | None
    last_seq: int | None
    appended: int
    next_seq: int | None = None
    duplicate: bool = False
    incarnation: str | None = None

    @property
    def result(self) -> Appended:
        """Return the seqs of the records, which have no other ones in between, as `Topic.append_once` does."""
        if self.first_seq is None or self.last_seq is None:
            return Appended(range(self.next_seq or 0, self.next_seq or 0), self.duplicate)
        return Appended(range(self.first_seq, self.last_seq + 1), self.duplicate)


def receipt_of(request: Request, answer: Answer) -> Receipt:
    fields = _object(request, answer)
    try:
        return Receipt(
            fields["first_seq"],
            fields["last_seq"],
            int(fields["appended"]),
            fields.get("next_seq"),
            bool(fields.get("duplicate", False)),
            answer.headers.get(INCARNATION) or fields.get("incarnation"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise unfit(request, answer) from error


def bounds_of(request: Request, answer: Answer) -> Bounds:
    headers = answer.headers
    try:
        earliest, head, sealed, epoch = (
            int(headers[f"seglog-{name}"]) for name in ("earliest", "head", "sealed", "epoch")
        )
    except (KeyError, ValueError) as error:
        raise unfit(request, answer) from error
    return Bounds(earliest, head, sealed, epoch, headers.get(INCARNATION))


def problem_of(body: bytes) -> dict[str, Any]:
    """Return the daemon's report of a failed request, or {}: the answer to a broken request has none."""
    try:
        report = json.loads(body)
    except ValueError:
        return {}
    return report if isinstance(report, dict) else {}


def error_of(request: Request, outcome: Outcome, address: str) -> SeglogError:
    """Return the error that a lost answer or a status from 400 on means."""
    if isinstance(outcome, Lost):
        hint = {} if outcome.is_sent else {"hint": _HINT_UNSENT}
        return DaemonGone(address, outcome.reason, **hint)
    report = problem_of(outcome.body)
    title = report.get("title") or _title_without_body(outcome.status)
    try:
        error = _MADE[title](request, report)
    except (KeyError, TypeError, ValueError):
        return refusal_of(outcome.status, outcome.body, title)
    return error


def error_of_line(request: Request, report: Any) -> SeglogError:
    """Return the error that the last line or the last event of an answer tells of."""
    fields = report if isinstance(report, dict) else {}
    try:
        return _MADE[fields.get("error")](request, fields)
    except (KeyError, TypeError, ValueError):
        return failure_of(fields)


def failure_of(report: Mapping[str, Any]) -> DaemonError:
    """Return the error of a report at the end of an answer."""
    message = str(report.get("message") or report.get("detail") or "the answer failed")
    return DaemonError(message, int(report.get("exit_code", 1)), hint=report.get("hint"), title=report.get("error"))


def refusal_of(status: int, body: bytes, title: str | None = None) -> DaemonError:
    """Return the error of a failed request, with the exit code of a command. `title` is for a body without one."""
    report = problem_of(body)
    detail, code = str(report.get("detail") or f"status {status}"), _EXIT_CODES.get(status, 1)
    return DaemonError(detail, code, hint=report.get("hint"), title=report.get("title") or title, status=status)


def _title_without_body(status: int) -> str | None:
    """Return the name of the error of an answer to HEAD, which has no body. A topic is what it asks for."""
    return "NoSuchTopic" if status == 404 else None


def _object(request: Request, answer: Answer) -> dict[str, Any]:
    fields = problem_of(answer.body)
    if not fields:
        raise unfit(request, answer)
    return fields


def unfit(request: Request, answer: Answer) -> DaemonError:
    """Return the error of an answer that no daemon of this version gives."""
    hint = "look whether the address is that of a seglog daemon of this version"
    return DaemonError(f"the answer to {request.method} {request.path} is not of a daemon", 1, hint=hint,
                       status=answer.status)  # fmt: skip


def _identity(request: Request) -> tuple[str, int, int]:
    """Return the id, the epoch and the number of the request's batch. Raise `KeyError` without one."""
    if request.producer is None:
        raise KeyError("producer")
    return request.producer.id, request.producer.epoch, request.producer.number


def _fenced(request: Request, report: dict[str, Any]) -> SeglogError:
    name, epoch, _ = _identity(request)
    return errors.ProducerFenced(request.topic, name, epoch, int(report["epoch"]))


def _gap(request: Request, report: dict[str, Any]) -> SeglogError:
    name, _, number = _identity(request)
    return errors.ProducerGap(request.topic, name, number, int(report["expected"]))


def _forgotten(request: Request, report: dict[str, Any]) -> SeglogError:
    name, _, number = _identity(request)
    return errors.BatchForgotten(request.topic, name, number, int(report["newest"]))


def _reused(request: Request, report: dict[str, Any]) -> SeglogError:
    return errors.BatchReused(request.topic, *_identity(request), int(report["records"]))


def _head_moved(request: Request, report: dict[str, Any]) -> SeglogError:
    if request.if_head is None:
        raise KeyError("if_head")
    return errors.HeadMoved(request.topic, request.if_head, int(report["head_seq"]))


def _other_incarnation(request: Request, report: dict[str, Any]) -> SeglogError:
    if request.incarnation is None:
        raise KeyError("incarnation")
    return errors.OtherIncarnation(request.topic, request.incarnation, report.get("incarnation"))


def _key_reused(request: Request, report: dict[str, Any]) -> SeglogError:
    if request.key is None:
        raise KeyError("key")
    return errors.KeyReused(request.topic, request.key, int(report["first_seq"]), int(report["records"]))


def _out_of_range(request: Request, report: dict[str, Any]) -> SeglogError:
    return errors.SeqOutOfRange(request.topic, int(report["seq"]), int(report["first"]), int(report["last"]))


def _evicted(request: Request, report: dict[str, Any]) -> SeglogError:
    return errors.Evicted(request.topic, int(report["gap_from"]), int(report["gap_to"]))


def _truncated(request: Request, report: dict[str, Any]) -> SeglogError:
    return errors.Truncated(request.topic, int(report["seq"]), int(report["epoch"]))


_MADE: Final[Mapping[str | None, Callable[[Request, dict[str, Any]], SeglogError]]] = MappingProxyType(
    {
        "BatchForgotten": _forgotten,
        "BatchReused": _reused,
        "ConcurrentModification": lambda request, _said: errors.ConcurrentModification(request.topic),
        "Evicted": _evicted,
        "HeadMoved": _head_moved,
        "KeyReused": _key_reused,
        "NoSuchTopic": lambda request, _said: errors.NoSuchTopic(request.topic),
        "OtherIncarnation": _other_incarnation,
        "ProducerFenced": _fenced,
        "ProducerGap": _gap,
        "SeqOutOfRange": _out_of_range,
        "Truncated": _truncated,
    }
)
"""The errors that the client makes of a problem, with all their fields."""
