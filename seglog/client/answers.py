"""The answers of the daemon, as values, and the errors that they mean. No I/O.

A problem (RFC 9457) names the class of its error in `class`: one of `seglog.errors`, `catalog.errors` or
`offload.errors`. The client raises that class with all its fields, as a log and an archive in the process do. It
imports the last two when such an error comes. What only a daemon refuses, such as a token, becomes a `DaemonError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from seglog import errors
from seglog.base.dataclasses import dataclass
from seglog.base.errors import ERROR_MODULES
from seglog.base.shadowing import shadowing_text
from seglog.client.connections import CLOSED, Answer, Lost, Outcome, Request
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


def topics_of(request: Request, answer: Answer) -> list[str]:
    names = _object(request, answer).get("topics")
    if not isinstance(names, list):
        raise unfit(request, answer)
    return [str(name) for name in names]


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
        if outcome is CLOSED:
            return errors.LogClosed.told(outcome.reason, None, {})
        hint = {} if outcome.is_sent else {"hint": _HINT_UNSENT}
        return DaemonGone(address, outcome.reason, **hint)
    if request.method == "HEAD" and outcome.status == 404:
        return errors.NoSuchTopic(request.topic)
    report = problem_of(outcome.body)
    return _own_error(report) or refusal_of(outcome.status, outcome.body)


def error_of_line(report: Any) -> SeglogError:
    """Return the error that the last line or the last event of an answer tells of."""
    fields = report if isinstance(report, dict) else {}
    return _own_error(fields) or failure_of(fields)


def _own_error(report: Mapping[str, Any]) -> SeglogError | None:
    """Return the error whose class the report names, with all its fields; None if it names none of ours."""
    fields, (home, _, name) = report.get("fields"), str(report.get("class")).rpartition(".")
    if not isinstance(fields, dict) or home not in ERROR_MODULES or shadowing_text(home.partition(".")[0]):
        return None
    try:
        module = import_module(home)
    except ImportError:
        return None
    kind = getattr(module, name, None)
    if not isinstance(kind, type) or not issubclass(kind, SeglogError) or kind is DaemonError:
        return None
    if any(field.startswith("_") or callable(getattr(kind, field, None)) for field in fields):
        return None
    types = {**vars(kind).get("__annotations__", {}), **getattr(vars(kind).get("__init__"), "__annotations__", {})}
    try:
        values = {field: _from_json(value, types.get(field, "")) for field, value in fields.items()}
    except TypeError:  # a path that is no text
        return None
    return kind.told(str(report.get("detail") or report.get("message")), report.get("hint"), values)


def _from_json(value: Any, declared: str) -> Any:
    """Return the value of a field: of JSON's kinds, a path, or pairs."""
    if isinstance(value, list) and declared.startswith("tuple"):
        return tuple(map(tuple, value))
    return Path(value) if value is not None and declared in ("Path", "Path | None") else value


def failure_of(report: Mapping[str, Any]) -> DaemonError:
    """Return the error of a report at the end of an answer."""
    message = str(report.get("message") or report.get("detail") or "the answer failed")
    return DaemonError(message, int(report.get("exit_code", 1)), hint=report.get("hint"), title=report.get("error"))


def refusal_of(status: int, body: bytes) -> DaemonError:
    """Return the error of a failed request, with the exit code of a command."""
    report = problem_of(body)
    detail, code = str(report.get("detail") or f"status {status}"), _EXIT_CODES.get(status, 1)
    return DaemonError(detail, code, hint=report.get("hint"), title=report.get("title"), status=status)


def _object(request: Request, answer: Answer) -> dict[str, Any]:
    fields = problem_of(answer.body)
    if not fields:
        raise unfit(request, answer)
    return fields


def fit(request: Request, answer: Answer) -> Answer:
    """Return the answer. Raise `DaemonError` if it has another type than the request asks for: a proxy may give it."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip()
    if request.method != "HEAD" and kind != request.headers.get("Accept", "application/json"):
        raise unfit(request, answer)
    return answer


def unfit(request: Request, answer: Answer) -> DaemonError:
    """Return the error of an answer that no daemon of this version gives."""
    hint = "look whether the address is that of a seglog daemon of this version"
    return DaemonError(f"the answer to {request.method} {request.path} is not of a daemon", 1, hint=hint,
                       status=answer.status)  # fmt: skip
