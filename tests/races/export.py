"""An export that meets another call: its files beside the state that its manifest names."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from offload.operations import export as use
from offload.operations.export import ExportRequest
from offload.operations.export_directory import MANIFEST
from offload.operations.export_forms import Form
from offload.operations.export_state import Calls, ExportBegun, Source
from tests.faults.disk import SimulatedDisk

__all__ = ["exported"]

_DIRECTORY = Path("/export")


def exported(call: Calls, topic: str) -> object:
    """Export a topic to a disk of its own. Return its values, and whether they are all of the state in its manifest.

    If no commit has the state, only the log could tell, and it may have changed since.
    """
    disk, of_state = SimulatedDisk(), list[str]()

    def call_and_look(path: str, values: Mapping[str, Any]) -> Iterator[Any]:
        if path == "pin/release":  # the lease of the export still holds its state
            batches = call("read", {"topic": topic, "at": f"pin:{values['name']}"})
            records = itertools.chain.from_iterable(batch.items for batch in batches)
            of_state[:] = [record.value.decode() for record in records]
        return call(path, values)

    source, wanted = Source(call_and_look, topic, lambda _: None), ExportRequest(topic, None, Form.RAW, 1 << 20)
    begun, *_ = use.export(source, disk, _DIRECTORY, wanted, lambda _seq, _last: None)
    assert isinstance(begun, ExportBegun)
    tree = disk.after_kill().tree
    names = sorted(name for name in tree if name.startswith(f"{_DIRECTORY}/") and not name.endswith(MANIFEST))
    values = b"".join(tree[name] or b"" for name in names).decode().split()
    return [values, begun.volume is None or values == of_state]
