"""The state of a topic that an export copies, and how a later run finds it again.

    a state in the remote    a commit, and a seq in it. A pin holds it while the export runs, and for a day after a kill
    another state            records that no commit has, up to the head at the start. Only the log has them

COPY-1  A state in the remote is read from the remote alone. So no delete, eviction, truncation or merge changes it.
COPY-2  A run that continues reads the commit that the manifest names, with the same hash, or fails.
COPY-3  If the log evicts or truncates records of a state that no commit has, the export fails. A delete takes the
    records that the export has not reached.
COPY-4  An export without a target leaves out what is past the ttl. Nothing else of the state is left out: if a reader
    sees fewer records, the state must still be the newest after that. Otherwise a delete may have come meanwhile, and
    the export begins again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from offload.errors import ExportOutdated
from offload.operations.points import Resolved
from offload.operations.result_json import problem
from seglog import ConcurrentModification, Gap, Record
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Conflict

Calls = Callable[[str, Mapping[str, Any]], Iterator[Any]]
"""Runs a command of the registry by its path, with its arguments, and returns its results."""

_LEASE = "1d"
_ROUNDS = 20
_RENEW_AFTER_S = 3600.0
_NO_WRITER = frozenset({"DirectoryInUse", "DirectoryNotWritable"})
_NO_COMMIT = frozenset({"NoRemote", "NotOffloaded", "OutOfWindow"})
_NO_PIN = frozenset({"NoSuchPin", "PinLost"})
_NO_POINT = frozenset({"InvalidTarget", "NoSuchTag", "NotOffloaded", "OutOfWindow"})


@dataclass(frozen=True, slots=True)
class ExportBegun:
    """The state that an export copies, and its form. `hash` is the commit's.

    `volume`, `lsn` and `hash` are None if no commit has the state; then `epoch` is the topic's. `seq` is the cut within
    the commit, or None. `pin` names the lease on the state.
    """

    topic: str
    branch: str
    target: str | None
    volume: str | None
    lsn: int | None
    hash: str | None
    seq: int | None
    epoch: int | None
    first_seq: int
    last_seq: int
    format: str
    part_bytes: int
    pin: str | None

    @property
    def name(self) -> str:
        return self.topic if self.branch == "main" else f"{self.topic}@{self.branch}"

    @property
    def state(self) -> str:
        """Return the state as a message names it."""
        if self.lsn is None:
            return f"what the log had up to seq {self.last_seq}"
        return f"lsn {self.lsn}" if self.seq is None else f"lsn {self.lsn} up to seq {self.seq}"


class Source:
    """The states of one topic, through the commands that show them. `remark` gets lines for the operator."""

    def __init__(self, call: Calls, name: str, remark: Callable[[str], None]) -> None:
        self._call = call
        self._name = name
        self._remark = remark
        self._renewed_s = time.monotonic()

    def begin(self, at: str | None, form: str, part_bytes: int) -> ExportBegun:
        """Return the state that `at` means now, pinned if it is in the remote. Without `at`, all live records."""
        for _ in range(_ROUNDS):
            begun = self._looked_up(at, form, part_bytes)
            if begun.volume is None:
                return begun
            try:
                first_seq = self._first_of(begun)
            except BaseException:
                self.release(begun)
                raise
            if first_seq is not None:
                return replace(begun, first_seq=min(first_seq, begun.last_seq + 1))
            self.release(begun)
        raise ConcurrentModification(self._name)

    def _looked_up(self, at: str | None, form: str, part_bytes: int) -> ExportBegun:
        """Return the state that `at` means now, from the first seq that it may have."""
        topic, _, branch = self._name.partition("@")
        try:
            state = self._resolved("head" if at is None else at, pins=True)
        except Exception as error:
            if at is not None or problem(error)["error"] not in _NO_COMMIT:
                raise
            [described] = self._call("topic/show", {"topic": self._name})
            first_seq, last_seq = self._first_seq(None) or 1, described.places.head_seq
            return ExportBegun(
                topic=topic,
                branch=branch or "main",
                target=None,
                volume=None,
                lsn=None,
                hash=None,
                seq=None,
                epoch=described.places.epoch,
                first_seq=first_seq,
                last_seq=max(last_seq, first_seq - 1),
                format=form,
                part_bytes=part_bytes,
                pin=None,
            )
        return ExportBegun(
            topic=topic,
            branch=branch or "main",
            target=at,
            volume=state.volume,
            lsn=state.lsn,
            hash=state.hash,
            seq=state.seq,
            epoch=None,
            first_seq=1,
            last_seq=state.before[-1].seq if state.before else 0,
            format=form,
            part_bytes=part_bytes,
            pin=state.pin,
        )

    def _first_of(self, begun: ExportBegun) -> int | None:
        """Return the first seq to copy of a state in the remote (COPY-4). None if it is not the newest state now."""
        none = begun.last_seq + 1
        first_seq = self._first_seq(self._target(begun)) or none
        live_seq = (self._first_seq(None) or none) if begun.target is None else first_seq
        if live_seq <= first_seq:
            return first_seq
        newest = self._found("head", pins=False)
        return live_seq if newest is not None and _is_same(newest, begun) else None

    def resume(self, begun: ExportBegun) -> ExportBegun:
        """Return the state of an earlier run, pinned again. Raises `ExportOutdated`."""
        if begun.volume is None:
            self.check(begun)
            return begun
        if begun.pin is not None and self._is_renewed(begun.pin):
            return begun
        for target in filter(None, (f"lsn:{begun.lsn}@{begun.volume}", begun.target)):
            state = self._found(target, pins=True)
            if state is not None:
                again = replace(begun, pin=state.pin)
                if _is_same(state, begun):
                    return again
                self.release(again)
        raise ExportOutdated(self._name, f"{begun.state} is no longer kept")

    def check_target(self, begun: ExportBegun, at: str | None) -> None:
        """Raise `Conflict` if `at` is given, and does not mean the state of the earlier run."""
        if at is None or at == begun.target:
            return
        state = self._resolved(at, pins=False)
        if not _is_same(state, begun) or state.seq != begun.seq:
            cut = "" if state.seq is None else f" up to seq {state.seq}"
            raise other_export(f"{begun.name} at {begun.state}", f"{at}, which is lsn {state.lsn}{cut}")

    def records(self, begun: ExportBegun, first_seq: int) -> Iterator[tuple[Record, ...]]:
        """Yield the records of the state from `first_seq` on. Raises `ExportOutdated` if the log has lost some."""
        if first_seq > begun.last_seq:
            return
        values: dict[str, Any] = {"topic": self._name, "start": first_seq, "end": begun.last_seq}
        if begun.volume is not None:
            values["at"] = self._target(begun)
        try:
            for batch in self._call("read", values):
                self._renew(begun)
                self._check_whole(batch.items)
                yield batch.items
        except Exception as error:
            report = problem(error)
            if begun.volume is None and report["error"] in ("Evicted", "Truncated"):
                raise ExportOutdated(self._name, report["message"]) from error
            raise

    def check(self, begun: ExportBegun) -> None:
        """Raise `ExportOutdated` if the topic was truncated since, so that its seqs mean other records."""
        if begun.volume is None:
            [topic] = self._call("topic/show", {"topic": self._name})
            if topic.places.epoch != begun.epoch:
                raise ExportOutdated(self._name, "the topic was truncated or made again meanwhile")

    def _check_whole(self, items: tuple[Record | Gap, ...]) -> None:
        lost = next((item for item in items if isinstance(item, Gap)), None)
        if lost is not None:
            raise ExportOutdated(self._name, f"seq {lost.gap_from} to {lost.gap_to} were evicted meanwhile")

    def lsns(self, begun: ExportBegun) -> list[tuple[int, int]]:
        """Return the last seq and the LSN of each segment of the state, ascending."""
        if begun.volume is None:
            return []
        segments = self._call("segments", {"topic": self._name, "at": self._target(begun)})
        return [(segment.last_seq, segment.lsn) for segment in segments]

    def release(self, begun: ExportBegun) -> None:
        """End the lease on the state. If another process has the directory, the lease ends by itself."""
        if begun.pin is not None:
            self._try("pin/release", {"name": begun.pin}, _NO_WRITER | _NO_PIN)

    def _resolved(self, target: str, *, pins: bool) -> Resolved:
        values: dict[str, Any] = {"topic": self._name, "to": target, "neighbours": 0}
        try:
            [state] = self._call("resolve", {**values, "pin": _LEASE if pins else None})
        except Exception as error:
            if not pins or problem(error)["error"] not in _NO_WRITER:
                raise
            [state] = self._call("resolve", values)
            self._remark(f"another process has the directory, so no lease holds {target} of {self._name}")
        return state  # type: ignore[no-any-return]

    def _target(self, begun: ExportBegun) -> str:
        """Return a target that means exactly the state."""
        if begun.pin is not None:
            return f"pin:{begun.pin}"
        for target in filter(None, (f"lsn:{begun.lsn}@{begun.volume}", begun.target)):
            state = self._found(target, pins=False)
            if state is not None and _is_same(state, begun):
                return target
        raise ExportOutdated(self._name, f"{begun.state} is no longer kept")

    def _first_seq(self, at: str | None) -> int | None:
        """Return the first live seq of a state, or None if it has no record."""
        for batch in self._call("read", {"topic": self._name, "at": at, "limit": 1}):
            for item in batch.items:
                if isinstance(item, Record):
                    return item.seq
        return None

    def _renew(self, begun: ExportBegun) -> None:
        if begun.pin is not None and time.monotonic() - self._renewed_s > _RENEW_AFTER_S:
            self._renewed_s = time.monotonic()
            self._try("pin/refresh", {"name": begun.pin, "time": _LEASE}, _NO_WRITER)

    def _is_renewed(self, pin: str) -> bool:
        """Extend a lease. Return False if it has ended."""
        error = self._try("pin/refresh", {"name": pin, "time": _LEASE}, _NO_PIN | _NO_WRITER)
        return error not in _NO_PIN

    def _found(self, target: str, *, pins: bool) -> Resolved | None:
        """Return the point of a target, or None if there is none."""
        try:
            return self._resolved(target, pins=pins)
        except Exception as error:
            if problem(error)["error"] not in _NO_POINT:
                raise
            return None

    def _try(self, path: str, values: Mapping[str, Any], passed: frozenset[str]) -> str | None:
        """Run a command. If it fails with one of these errors, return the error's name."""
        try:
            list(self._call(path, values))
        except Exception as error:
            name: str = problem(error)["error"]
            if name not in passed:
                raise
            return name
        return None


def _is_same(state: Resolved, begun: ExportBegun) -> bool:
    return (state.volume, state.lsn, state.hash) == (begun.volume, begun.lsn, begun.hash)


def other_export(found: str, wanted: str) -> Conflict:
    """Return the error of a directory with an export of `found`, if the command asks for `wanted`."""
    text = f"the directory has an export of {found}, and this command asks for {wanted}; nothing was changed"
    return Conflict(text, hint="name another directory, or repeat the former command to continue")
