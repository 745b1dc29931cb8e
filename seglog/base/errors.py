"""The root of all errors of seglog, and the groups that tell a handler what to do.

    SeglogError
    ├── Corrupt              stop, and verify                              exit 5
    ├── Conflict             the object is taken, or was changed           exit 4
    ├── Missing              the requested object does not exist           exit 3
    ├── Unavailable          nothing was changed; repair, or try again     exit 1
    └── Misuse               fix the call                                  exit 2
        ├── InvalidArgument      a value that the call does not take; a TypeError and a ValueError too
        ├── InvalidName          a name of a topic, a branch or a tag that is none
        └── OpenedByParent       an object in a fork of the process that opened it

Below these are the errors of topics, branches and targets. The catalog raises them, and the client of a daemon, which
imports no catalog, raises the same classes. `seglog.errors` shows them to callers.

An error is a template. Its annotations are its fields, in the order of its arguments, and its texts name them:

    class DirectoryInUse(Conflict):
        path: Path
        holder: str
        message = "{path} is in use by {holder}"
        hint = "stop that process, or use another directory"

    raise DirectoryInUse(path, holder)

`message` says what happened, and `hint`, if there is one, what to do next. A traceback ends with both. A class whose
texts depend on more than its fields has an `__init__`, which calls `_tell`. A class without a message takes it from the
caller, with the hint.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self, dataclass_transform

#: The modules whose errors a client of a daemon raises as their own classes.
ERROR_MODULES = ("seglog.errors", "catalog.errors", "offload.errors")
_MOST_CHARACTERS = 4096
_SHOWN_IN = ERROR_MODULES[0]  # a traceback names the classes as callers import them


@dataclass_transform()
class SeglogError(Exception):
    """The root of the errors. `exit_code` is the exit code of a command that fails with the error."""

    __module__ = _SHOWN_IN
    exit_code: ClassVar[int] = 1
    message: ClassVar[str] = ""
    hint: str | None = None
    _fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
        cls.__module__ = _SHOWN_IN if cls.__module__ == __name__ else cls.__module__
        own = vars(cls).get("__annotations__", {})
        fields = tuple(name for name, kind in own.items() if not str(kind).startswith("ClassVar"))
        cls._fields += fields
        cls._defaults = {**cls._defaults, **{name: vars(cls)[name] for name in fields if name in vars(cls)}}

    def __init__(self, *values: Any, **named: Any) -> None:
        if not self.message:
            self._tell(*values, **named)
            return
        fields = self._fields
        told = {**self._defaults, **dict(zip(fields, values, strict=False)), **named}
        if len(values) > len(fields) or told.keys() != {*fields}:
            raise TypeError(f"{type(self).__name__} takes {', '.join(fields) or 'nothing'}")
        self.__dict__.update(told)
        hint = told["hint"] if "hint" in told else self.hint and self.hint.format_map(told)
        self._tell(self.message.format_map(told), hint=hint)

    @classmethod
    def told(cls, message: str, hint: str | None, fields: Mapping[str, Any]) -> Self:
        """Return an error as another process tells it: with these texts and fields."""
        error = cls.__new__(cls)
        error._tell(message, hint=hint)  # noqa: SLF001 - of this class
        error.__dict__.update(fields)
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by the arguments, as exceptions do: the texts are made, so that a process pool gets them as they are.
        return type(self).told, (str(self), self.hint, {}), vars(self)

    def fields(self) -> dict[str, Any]:
        """Return the fields of the error for `told`. What JSON lacks becomes a text, and a long text is cut."""
        own = {name: value for name, value in vars(self).items() if not name.startswith("_") and name != "hint"}
        return {name: _plain(value) for name, value in own.items()}

    def _tell(self, message: str, *, hint: str | None = None) -> None:
        Exception.__init__(self, message)
        self.hint = hint
        if hint:
            self.add_note(f"Hint: {hint}")


def _plain(value: object) -> object:
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, str):
        return value[:_MOST_CHARACTERS]
    is_plain = value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_plain else reprlib.repr(value)


class Corrupt(SeglogError):
    exit_code = 5


class Conflict(SeglogError):
    exit_code = 4


class Missing(SeglogError):
    exit_code = 3


class Unavailable(SeglogError):
    exit_code = 1


class Misuse(SeglogError):
    exit_code = 2


class InvalidArgument(Misuse, TypeError, ValueError):
    """The call does not take this value, and nothing was done.

    `name` is the argument, `given` its value. `wanted` says what the call takes. The error is a `TypeError` and a
    `ValueError`, because Python raises either for such a value.
    """

    def __init__(self, name: str, given: object, wanted: str) -> None:
        self._tell(f"argument {name} is {reprlib.repr(given)} ({type(given).__name__}): it must be {wanted}")
        self.name = name
        self.given = given
        self.wanted = wanted


class InvalidName(Misuse):
    kind: str
    name: str
    hint: str = "1 to 128 characters of A-Z a-z 0-9 . _ -, the first one a letter, digit or underscore"
    message = "{name!r} is not a valid {kind} name"


class OpenedByParent(Misuse):
    """This process is a fork of the process that opened the log, journal, archive or catalog.

    The fork has only a copy. The parent still uses the original.
    """

    parent: int
    message = "process {parent} opened it, and this process is a fork of that one; nothing was done"
    hint = (
        "open it in this process after the parent has closed it, use the daemon (`seglog serve`), or start processes "
        "with multiprocessing's spawn method"
    )


class CatalogError(SeglogError):
    """The root of the errors of the catalog. Each belongs to a group, too. The log itself raises none of them."""

    __module__ = ERROR_MODULES[1]


class BranchExists(Conflict, CatalogError):
    topic: str
    branch: str
    message = "{topic}@{branch} exists already"
    hint = "choose another name: a restore never overwrites"


class NoSuchBranch(Missing, CatalogError):
    topic: str
    branch: str
    message = "no branch {topic}@{branch}"
    hint = "`seglog branch list {topic}` lists the branches"


class NoSuchTag(Missing, CatalogError):
    topic: str
    tag: str
    message = "{topic} has no tag {tag}"
    hint = "`seglog tag list {topic}` lists the tags"


class OutOfWindow(Missing, CatalogError):
    """The target lies outside what is kept. The message gives the window. The call never guesses the nearest point."""

    target: str
    window: str
    hint: str | None = None
    message = "{target} is outside the kept history. Restorable: {window}"


class InvalidTarget(Misuse, CatalogError):
    def __init__(self, text: str, reason: str = "") -> None:
        self._tell(
            f"{text!r} is not a point in time{': ' + reason if reason else ''}",
            hint="use seq:N, lsn:N, head, head~N, tag:NAME, or a time such as 2026-11-21T09:30:00Z or '15 minutes ago'",
        )
        self.text = text


class NoSuchTopic(Missing):
    topic: str
    message = "no topic {topic}"
    hint = "`seglog status` lists the topics, also those that this directory only follows"


class SeqOutOfRange(Missing):
    """The topic has no such seq. It has the seqs from `first` to `last`, or none if `last` is below `first`."""

    def __init__(self, topic: str, seq: int, first: int, last: int) -> None:
        there_is = f"it holds {first} to {last}" if last >= first else "it is empty"
        self._tell(f"seq {seq} is outside topic {topic}: {there_is}")
        self.topic = topic
        self.seq = seq
        self.first = first
        self.last = last


class Evicted(Missing):
    """Retention took live records of the requested range."""

    def __init__(self, topic: str, gap_from: int, gap_to: int) -> None:
        self._tell(
            f"records {gap_from} to {gap_to} of topic {topic} were evicted",
            hint=f"continue from seq {gap_to + 1} on, or ask with gaps=True, which returns a Gap in their place",
        )
        self.topic = topic
        self.gap_from = gap_from
        self.gap_to = gap_to


class DaemonError(SeglogError):
    """The daemon's refusal of a request that a log would not refuse: of a wrong token, or of one request too many.

    `status` is that of the answer, or None if the report came later. `title` is the name of the error in the daemon.
    """

    def __init__(
        self,
        message: str,
        exit_code: int,
        *,
        hint: str | None = None,
        title: str | None = None,
        status: int | None = None,
    ) -> None:
        self._tell(message, hint=hint)
        self.exit_code = exit_code  # type: ignore[misc]
        self.title = title
        self.status = status


class AppendUnknown(Unavailable):
    """The outcome of an append is unknown: the daemon may have appended the records or not.

    `number` is the first batch of a producer whose outcome is unknown. `records` is the number of records that the
    producer sent before that batch: all of them are in. Both are None without a producer. `after_seq` is the last seq
    of these records: the records of the batch, if they are in, come after it. It is None without such a record.
    """

    def __init__(
        self,
        topic: str,
        reason: str,
        *,
        number: int | None = None,
        records: int | None = None,
        after_seq: int | None = None,
        hint: str | None = None,
    ) -> None:
        told = "the append" if number is None else f"batch {number} of the producer"
        last = "" if after_seq is None else f", the last one with seq {after_seq}"
        before = "" if records is None else f"; the {records} records before it are in{last}"
        self._tell(
            f"{told} to topic {topic} may be in or not: {reason}{before}",
            hint=hint or "read the end of the topic to see whether the records are there",
        )
        self.topic = topic
        self.reason = reason
        self.number = number
        self.records = records
        self.after_seq = after_seq


class DaemonGone(Unavailable):
    """The daemon at `place` did not answer, or its answer broke off."""

    place: str
    reason: str
    hint: str = "read its log, then try again"
    message = "the daemon at {place} did not answer: {reason}"


def format_bytes(count: int) -> str:
    """Return a size as people read it, such as `536.9 MB`."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def moment_text(ms: int) -> str:
    """Return a time in ms as `2026-11-21T09:30:00Z`. A clock that is wrong may say anything."""
    from datetime import UTC, datetime  # imported late: few errors have a time

    try:
        return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms since 1970"
