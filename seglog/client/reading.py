"""Reads and followers that resume: the state between their tries, as values. No I/O.

    1  The reader asks for the records from seq 5 on, and the daemon's answer begins.
    2  The reader hands record 5 and record 6 to its caller. Then the connection breaks.
    3  The reader asks again, from seq 7 on. It first waits, as for any request that is repeated (CLIENT-2).
    4  If the topic was truncated meanwhile, it has another epoch. A reader raises `ConcurrentModification`. A follower
       sends the id of its last event. The daemon then says from which seq on the records are gone, and the follower
       raises `Truncated`.
    5  A reader asks no further than to the head that the first answer named. So it shows no record that came later.
    6  If the daemon ends a follower because it stops, the follower asks again too.
    7  If another directory answers, or the topic was made again, its incarnation is another one. Epochs of the two do
       not compare. A reader raises `ConcurrentModification`, and a follower `OtherIncarnation`.

The rule that this keeps (CLIENT-4) is in `seglog.client`.

A read as batches of Apache Arrow is one of pages. Each page is a request of its own.

    1  The reader asks for the first page: up to 8,192 records, or half a MiB of values. The daemon makes all of such an
       answer before it sends it, so an error has its status, and `seglog-next-seq` says where the next page begins.
    2  The answer names the head. The reader asks no further than there, as any read (CLIENT-4).
    3  If the answer is lost, the request is repeated, as any other (CLIENT-1). The caller has seen nothing of it.
    4  If a later page has another epoch or incarnation, the reader raises `ConcurrentModification`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeGuard

from seglog.base.dataclasses import dataclass
from seglog.client.answers import error_of_line, fit, unfit
from seglog.client.bodies import item_of, lines_of, object_of
from seglog.client.connections import Answer, Request
from seglog.client.requests import INCARNATION, Asked, follow_request, page_request, read_request
from seglog.client.sse import Event, EventParser
from seglog.errors import ConcurrentModification, DaemonError, OtherIncarnation, SeglogError, Truncated
from seglog.values.deletes import given_where, pattern_of
from seglog.values.protocols import Bounds, DeleteArguments
from seglog.values.record import Gap, Record

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH, _HEAD, _AT = "seglog-epoch", "seglog-head", "seglog-at"
_Item: TypeAlias = "Record | Gap"
_Version: TypeAlias = "tuple[str | None, str | None]"
"""The epoch and the incarnation that an answer names."""


def _version_of(topic: str, before: _Version | None, answer: Answer) -> _Version:
    """Return the version of an answer. If it is not the one of `before`, raise `ConcurrentModification`."""
    version = (answer.headers.get(_EPOCH), answer.headers.get(INCARNATION))
    if before is not None and before != version:
        raise ConcurrentModification(topic)
    return version


def _within_head(selection: Asked, answer: Answer) -> Asked:
    """Return the selection up to the head of the first answer, so that a later one shows no record that came after.

    That of a past state names the state as the first answer does, because `head~1` may soon be another one.
    """
    if selection.at is not None:
        selection = selection._replace(at=answer.headers.get(_AT, selection.at))
    head = answer.headers.get(_HEAD)
    if head is None:
        return selection
    return selection._replace(end=int(head) if selection.end is None else min(int(head), selection.end))


class _Fed(NamedTuple):
    """The items that a piece of an answer brought, the state after them, and the error that follows them.

    `is_progress`: the try got further than the one before, so its failures no longer count.
    """

    source: Reading | Following
    items: list[_Item]
    error: SeglogError | None
    is_progress: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """A read of a topic. `selection` is the rest of it. `version` has epoch and incarnation of the first answer."""

    topic: str
    selection: Asked
    version: _Version | None = None
    rest: tuple[bytes, ...] = ()
    ends_with_answer = True

    @property
    def request(self) -> Request:
        return read_request(self.topic, self.selection)

    @property
    def is_done(self) -> bool:
        selection = self.selection
        is_past = selection.end is not None and selection.start is not None and selection.start > selection.end
        return selection.limit == 0 or is_past

    def begun(self, answer: Answer) -> Reading:
        """Return the read after the head of an answer. Raise `ConcurrentModification` for another version."""
        version = _version_of(self.topic, self.version, fit(self.request, answer))
        selection = _within_head(self.selection, answer) if self.version is None else self.selection
        return replace(self, version=version, selection=selection, rest=())

    def fed(self, piece: bytes) -> _Fed:
        """Take a piece of the answer."""
        rest, lines = lines_of(self.rest, piece)
        items: list[_Item] = []
        error = None
        for line in lines:
            item = _item_of_line(line)
            if isinstance(item, SeglogError):
                error = item
                break
            items.append(item)
        return _Fed(replace(self, rest=rest, selection=_behind(self.selection, items)), items, error, bool(items))


@dataclass(frozen=True, slots=True)
class Following:
    """A follower of a topic. `last_event` is the id of the last event that came: the epoch and a seq.

    Before the first event it is the place where the follower began. `incarnation` is that of the first
    answer, or of what the caller has already.
    """

    topic: str
    selection: Asked
    last_event: str | None = None
    incarnation: str | None = None
    parser: EventParser = EventParser()
    ends_with_answer = False
    is_done = False

    @property
    def request(self) -> Request:
        return follow_request(self.topic, self.selection, self.last_event)

    def begun(self, answer: Answer) -> Following:
        """Return the follower after the head of an answer."""
        incarnation = fit(self.request, answer).headers.get(INCARNATION, self.incarnation)
        if self.incarnation is not None and incarnation != self.incarnation:
            raise OtherIncarnation(self.topic, self.incarnation, incarnation)
        last_event = self.last_event or place_of(self.selection.start, answer.headers.get(_EPOCH))
        return replace(self, last_event=last_event, incarnation=incarnation, parser=EventParser())

    def fed(self, piece: bytes) -> _Fed:
        """Take a piece of the answer."""
        parser, events, has_line = self.parser.fed(piece)
        after = replace(self, parser=parser)
        items: list[_Item] = []
        for event in events:
            after, item = after.dispatched(event)
            if isinstance(item, SeglogError):
                return _Fed(after, items, item, is_progress=True)
            if item is not None:
                items.append(item)
        return _Fed(replace(after, selection=_behind(after.selection, items)), items, None, has_line)

    def dispatched(self, event: Event) -> tuple[Following, _Item | SeglogError | None]:
        """Return the follower after an event, and the item or the error that the event means."""
        after = self if event.id is None else replace(self, last_event=event.id)
        kind, data = event.kind, event.data
        if kind in ("record", "gap"):
            return after, _item_of_line(data.encode())
        if kind == "truncated":
            epoch = str(after.last_event).partition("-")[0]
            return after, Truncated(self.topic, int(object_of(data.encode())["from"]), int(epoch))
        report = object_of(data.encode()) if kind == "end" else {}
        return after, error_of_line(report["error"]) if "error" in report else None


def place_of(start: int | None, epoch: object) -> str | None:
    """Return the id of an event whose client has the records below `start` of `epoch`, or None if it has none."""
    return None if epoch is None or start is None or start <= 1 else f"{epoch}-{start - 1}"


def _behind(selection: Asked, items: list[_Item]) -> Asked:
    """Return the rest of the selection, behind the items that came."""
    if not items:
        return selection
    last = items[-1]
    start = (last.gap_to if isinstance(last, Gap) else last.seq) + 1
    records = sum(isinstance(item, Record) for item in items)
    return selection._replace(start=start, limit=None if selection.limit is None else selection.limit - records)


def _item_of_line(line: bytes) -> _Item | SeglogError:
    """Return the item of a line, or the error of the last line of an answer that failed in the middle."""
    try:
        fields = object_of(line)
        return error_of_line(fields["error"]) if "error" in fields else item_of(fields)
    except (ValueError, KeyError, TypeError) as error:
        return DaemonError(f"a line of the answer is no record: {error}", 1)


_OTHER_IN_RE2 = ("$", "[:", r"\s", r"\S", r"\B", "(?")  # in older ones, `(?i)` takes \xe9 for \xc9, too


def is_looked_up_here(conditions: DeleteArguments) -> bool:
    """Return whether the daemon's RE2 might read the `grep` in another way than Python, by which a log deletes."""
    pattern = conditions.get("grep")
    return pattern is not None and any(part in pattern for part in _OTHER_IN_RE2)


@dataclass(frozen=True, slots=True)
class Lookup:
    """A look for the records of a delete by `grep`, where the daemon does not look."""

    topic: str
    conditions: DeleteArguments
    bounds: Bounds

    @property
    def reading(self) -> Reading:
        where = given_where(self.conditions)
        ends = [where.end, None if where.before is None else where.before - 1, self.bounds.head_seq]
        last = min(end for end in ends if end is not None)
        since_ms, until_ms = self.conditions.get("since_ms"), self.conditions.get("until_ms")
        asked = Asked(max(1, where.start or 1), last, since_ms, until_ms, self.conditions.get("tag"), gaps=True)
        return Reading(self.topic, asked)

    @property
    def takes(self) -> Callable[[_Item], TypeGuard[Record]]:
        """Return the function that tells whether the delete takes an item of the reading."""
        seqs, has_pattern = given_where(self.conditions).seqs, pattern_of(self.conditions.get("grep") or "")

        def takes(item: _Item) -> TypeGuard[Record]:
            return isinstance(item, Record) and bool(has_pattern(item.value)) and (seqs is None or item.seq in seqs)

        return takes

    def found(self, seqs: Iterable[int]) -> DeleteArguments:
        """Return the delete of the records with these seqs, in the epoch of the look."""
        epoch = self.conditions.get("epoch")
        return {"seqs": seqs, "epoch": self.bounds.epoch if epoch is None else epoch}


@dataclass(frozen=True, slots=True)
class ArrowReading:
    """A read of a topic by pages. `selection` is the rest of it."""

    topic: str
    selection: Asked
    version: _Version | None = None

    @property
    def request(self) -> Request:
        return page_request(self.topic, self.selection)

    @property
    def is_done(self) -> bool:
        selection = self.selection
        return self.version is not None and (selection.start or 1) > (selection.end or 0)

    def fed(self, answer: Answer) -> tuple[ArrowReading, list[pa.RecordBatch]]:
        """Return the rest of the read after a page, and the batches of the page. None is empty."""
        import pyarrow as pa

        if "seglog-head" not in answer.headers:
            raise unfit(self.request, answer)
        version = _version_of(self.topic, self.version, answer)
        selection = _within_head(self.selection, answer) if self.version is None else self.selection
        batches = [batch for batch in pa.ipc.open_stream(answer.body) if len(batch)]
        next_seq = answer.headers.get("seglog-next-seq")
        if next_seq is None:  # a page with long labels: it continues behind its last record
            next_seq = batches[-1].column("seq")[-1].as_py() + 1
        return replace(self, selection=selection._replace(start=int(next_seq)), version=version), batches
