"""The command `seglog inspect`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from offload.cli.session import Session
from offload.operations.command import About, Command

if TYPE_CHECKING:
    from offload.operations.inspect import ShownEntry

_SHOWN_BYTES = 48


def inspect(
    session: Session,
    target: Annotated[str, About("A path, or s3://bucket/key of an object.", metavar="OBJECT")],
    with_entries: Annotated[
        bool, About("The entries of a data object, of Apache Pulsar or of ours.", "--entries")
    ] = False,
    index: Annotated[
        str | None,
        About(
            "With --entries: its index object.",
            metavar="OBJECT",
            shown_default="OBJECT-index, as Pulsar names it, or OBJECT.index, as we do",
        ),
    ] = None,
    first: Annotated[int, About("With --entries: the first entry id.", "--from", least=0)] = 0,
    last: Annotated[int | None, About("With --entries: the last entry id.", "--to", least=0)] = None,
) -> None:
    """Print the contents of a file or an object. It knows commits, refs, index and data objects, segments and WAL
    files.

    It also knows objects of Apache Pulsar's tiered storage. The command changes nothing, and needs no data directory.
    With --entries, each entry is a line with ledger, entry id, length and the first bytes. With --json, each entry is
    an object with all its bytes as base64. Examples: seglog inspect s3://my-bucket/acme/refs/orders/main; seglog
    inspect --entries s3://pulsar/2f6c0d9e-ledger-1234
    """
    from offload.operations import inspect as use

    if with_entries:
        with session.one_command():
            for entry in use.entries(target, index, first, last):
                session.output.show(entry, _entry_line(entry))
        return
    with session.one_command():
        inspected = use.inspect(target)
    session.output.show(inspected, "\n".join(_lines(inspected.contents)))


def _entry_line(entry: ShownEntry) -> str:
    start = entry.data_base64[:_SHOWN_BYTES].hex() + ("…" if entry.length > _SHOWN_BYTES else "")
    ledger = "" if entry.ledger is None else f"{entry.ledger}:"
    return f"{ledger}{entry.entry} {entry.length} {start}".rstrip()


def _lines(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, dict):
            yield f"{indent}{key}:"
            yield from _lines(item, indent + "  ")
        elif isinstance(item, list) and item and isinstance(item[0], dict):
            yield f"{indent}{key}: {len(item)}"
            yield from (f"{indent}  {json.dumps(member)}" for member in item)
        else:
            yield f"{indent}{key}: {item if isinstance(item, str) else json.dumps(item)}"


INSPECT = Command("inspect", inspect, is_long=True)
