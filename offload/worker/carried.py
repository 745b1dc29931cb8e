"""An error on its way to another process. The other process raises it with its class and all its fields."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass

from offload.errors import WorkerFailed

__all__ = ["CarriedError"]


@dataclass(frozen=True, slots=True)
class CarriedError:
    """An error as plain values.

    `body` is the pickled class, arguments and fields, or None if they cannot be pickled. `text` is the traceback.
    """

    text: str
    body: bytes | None

    @classmethod
    def of(cls, error: BaseException) -> CarriedError:
        text = "".join(traceback.format_exception(error))
        try:
            # Do not pickle the error itself: pickle would call the class with a message, and ours take other arguments.
            body = pickle.dumps((type(error), error.__reduce__()[1], error.args, error.__dict__))
            pickle.loads(body)  # noqa: S301 - what was pickled a line above
        except Exception:
            return cls(text, None)
        return cls(text, body)

    def error(self) -> BaseException:
        if self.body is None:
            return WorkerFailed(self.text)
        kind, given, arguments, fields = pickle.loads(self.body)  # noqa: S301 - from our own process
        error: BaseException = kind.__new__(kind, *given)
        error.args = arguments
        error.__dict__.update(fields)
        error.add_note(f"in the process that uploads:\n{self.text}")
        return error
