"""`seglog status --watch`: the status again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

from offload.cli.output import Output
from offload.cli.streams import has_reader
from offload.operations.status import Shown, filled, parts, print_lines

__all__ = ["watch_status"]

_WATCH_S = 2.0


def watch_status(output: Output, ask: Callable[[], Iterator[Shown]], values: Mapping[str, Any]) -> None:
    """Print the status again and again, on a terminal in the same place, until an interrupt or without a reader."""
    if not output.is_rich:
        while has_reader():
            print_lines(output, ask(), values)
            output.flush()
            time.sleep(_WATCH_S)
        return
    from offload.cli.render import Screen, table

    with closing(Screen()) as shown:
        while True:
            head, rows, notes = parts(list(ask()))
            shown.show("\n".join([head, "", table(*filled(rows)), *notes]))
            time.sleep(_WATCH_S)
