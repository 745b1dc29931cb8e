"""The root of all errors of seglog, and the groups that tell a handler what to do.

    SeglogError
    ├── Corrupt              stop, and verify                              exit 5
    ├── Conflict             the object is taken, or was changed           exit 4
    ├── Missing              the requested object does not exist           exit 3
    ├── Unavailable          nothing was changed; repair, or try again     exit 1
    └── Misuse               fix the call                                  exit 2
        ├── InvalidArgument      a value that the call does not take; a TypeError and a ValueError too
        └── OpenedByParent       an object in a fork of the process that opened it

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

import reprlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform()
class SeglogError(Exception):
    """The root of the errors. `exit_code` is the exit code of a command that fails with the error."""

    exit_code: ClassVar[int] = 1
    message: ClassVar[str] = ""
    hint: str | None = None
    _fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
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

    def _tell(self, message: str, *, hint: str | None = None) -> None:
        Exception.__init__(self, message)
        self.hint = hint
        if hint:
            self.add_note(f"Hint: {hint}")


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
