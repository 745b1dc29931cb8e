"""Copy the byte strings of callers, so that no thread changes one while it is checksummed and written.

BYTES-1  A mutable value is copied once, before its length is measured. Another thread may change a bytearray at any
    time. The length, the checksum and the written bytes still agree.
BYTES-2  A memoryview becomes the bytes that `bytes()` of it gives. Items wider than a byte, strides and several
    dimensions are laid out in order. `len()` of such a view counts its items, not its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import cast

from seglog.errors import InvalidArgument

_KINDS = (bytes, bytearray, memoryview)
_NO_SEQUENCES = (*_KINDS, str, Mapping, Set)
_WANTED = "bytes, a bytearray or a memoryview"
_PLAIN = frozenset({bytes})


def byte_string(value: bytes | bytearray | memoryview, argument: str = "values") -> bytes:
    """Return the value as `bytes`. A bytearray or a memoryview is copied.

    Raise `InvalidArgument` for any other type, and for a memoryview that was released.
    """
    if type(value) is bytes:
        return value
    if not isinstance(value, _KINDS):
        raise InvalidArgument(argument, value, _WANTED)
    try:
        return bytes(value)
    except (ValueError, BufferError) as error:
        raise InvalidArgument(argument, value, f"{_WANTED} that can be read: {error}") from error


def check_in_order(argument: str, values: object, wanted: str) -> None:
    """Raise `InvalidArgument` for a single byte string or text, and for a collection without an order."""
    if not isinstance(values, Iterable) or isinstance(values, _NO_SEQUENCES):
        raise InvalidArgument(argument, values, wanted)


def byte_strings(values: Iterable[bytes | bytearray | memoryview]) -> Sequence[bytes]:
    """Return each of the values as `bytes`, in a new sequence.

    Raise `InvalidArgument` for a single byte string or text, and for a collection without an order.
    """
    # A list is no doubt a sequence, and the check of all kinds takes as long as the copy of 64 values.
    if type(values) is not list:
        check_in_order("values", values, "a sequence of byte strings")
    own = tuple(values)
    # Usually every value is `bytes`. One check of all types takes a tenth of the time of a check per value.
    return cast("tuple[bytes, ...]", own) if _PLAIN.issuperset(map(type, own)) else tuple(map(byte_string, own))
