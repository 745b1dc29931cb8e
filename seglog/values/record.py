"""The items that a reader gets: a record, or a gap in place of records that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from seglog.base.dataclasses import dataclass

LABEL_MAX_BYTES: Final = 0xFFFF
"""The length of a tag or node in UTF-8, at most."""

_GROUP_RECORDS = 1024
_GROUP_BYTES = 1024 * 1024


class Record(NamedTuple):
    """A record. `seq` counts from 1 within the topic. `ts_ms` is the time that the log set, in ms since the epoch.

    `unterminated`: the value was the last line of a text, without a line end. A caller that writes it as a line adds no
    line end.
    Readers make millions of records. A named tuple costs a quarter of a frozen dataclass.
    """

    seq: int
    ts_ms: int
    value: bytes
    tag: str | None = None
    node: str | None = None
    unterminated: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """The evicted records `gap_from` to `gap_to`, both inclusive. They were evicted before the reader got there.

    The user did not ask to remove these records one by one, so the reader reports them. It does not report deleted
    records.
    """

    gap_from: int
    gap_to: int


def tag_fits(tag: str | None, wanted: str) -> bool:
    """Return whether a tag is the wanted one. A trailing `*` makes that a prefix."""
    if tag is None:
        return False
    return tag.startswith(wanted[:-1]) if wanted.endswith("*") else tag == wanted


def selected(items: Iterable[Record | Gap], tag: str | None, limit: int | None) -> Iterator[Record | Gap]:
    """Yield the records with the tag, `limit` of them at most, and the gaps before the last of them."""
    left = limit
    for item in items if left != 0 else ():
        if isinstance(item, Record):
            if tag is not None and not tag_fits(item.tag, tag):
                continue
            left = None if left is None else left - 1
        yield item
        if left == 0:
            return


def in_groups(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield records in lists of up to a MiB. If `records` raises, yield the records before the error first."""
    group: list[Record] = []
    size_bytes = 0
    try:
        for record in records:
            group.append(record)
            size_bytes += len(record.value)
            if len(group) >= _GROUP_RECORDS or size_bytes >= _GROUP_BYTES:
                full, group, size_bytes = group, [], 0
                yield full
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group
