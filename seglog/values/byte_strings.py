"""Values of callers as `bytes`: a copy that nothing changes while it is checksummed and written.

B1  A value is copied once, before it is measured. Another thread may change a bytearray at any time, and the length,
    the checksum and the written bytes still agree.
B2  The value of a memoryview is what `bytes()` of it is: items wider than a byte, strides and several dimensions are
    laid out in order. `len()` of such a view counts its items, and not its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import cast

from seglog.errors import InvalidArgument

__all__ = ["byte_string", "byte_strings"]

_KINDS = (bytes, bytearray, memoryview)
_NO_SEQUENCES = (*_KINDS, str, Mapping, Set)
_WANTED = "bytes, a bytearray or a memoryview"
_PLAIN = frozenset({bytes})


def byte_string(value: bytes | bytearray | memoryview) -> bytes:
    """Raises `InvalidArgument` for what is none of these, and for a memoryview that was released."""
    if type(value) is bytes:
        return value
    if not isinstance(value, _KINDS):
        raise InvalidArgument("values", value, _WANTED)
    try:
        return bytes(value)
    except (ValueError, BufferError) as error:
        raise InvalidArgument("values", value, f"{_WANTED} that can be read: {error}") from error


def byte_strings(values: Iterable[bytes | bytearray | memoryview]) -> Sequence[bytes]:
    """Each of them, in a sequence of its own. Raises `InvalidArgument`, also for one byte string alone, and for what
    has no order.
    """
    if not isinstance(values, Iterable) or isinstance(values, _NO_SEQUENCES):
        raise InvalidArgument("values", values, "a sequence of byte strings")
    own = tuple(values)
    # Most are: asked of their types, thousands of them take a tenth of the time.
    return cast("tuple[bytes, ...]", own) if _PLAIN.issuperset(map(type, own)) else tuple(map(byte_string, own))
