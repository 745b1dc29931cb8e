"""protobuf with the messages of catalog/schema.proto, and pyroaring, imported when a name of them is first used.

Their import takes three times as long as a Python that does nothing. A look at the local log decodes no object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["pb", "protobuf", "pyroaring", "timestamps"]

if TYPE_CHECKING:
    import pyroaring
    from google.protobuf import message as protobuf
    from google.protobuf import timestamp_pb2 as timestamps

    from catalog import schema_pb2 as pb
else:
    from seglog.base.lazy import LazyModule

    # The first is for machines without the compiled protobuf, the second for texts of times.
    _RARE = ("google.protobuf.internal.python_message", "calendar")

    pb, protobuf = LazyModule("catalog.schema_pb2", *_RARE), LazyModule("google.protobuf.message")
    pyroaring, timestamps = LazyModule("pyroaring"), LazyModule("google.protobuf.timestamp_pb2", *_RARE)
