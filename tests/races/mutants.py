"""Mistakes that the races have to find: each one takes the mend of a fault back.

A mutant names the scene and the calls that meet, and a seed whose schedule shows the fault.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from catalog import MAIN, Branches, Snapshot, Vid, Volumes
from catalog.refs import name_undo
from catalog.refs.oplog import NumberedEntry, Oplog
from catalog.updates import Updates, pull
from offload import load
from offload.daemon.revocation import OpenAnswers
from offload.daemon.service import Service
from offload.daemon.streams import store
from offload.daemon.streams.entries import State
from offload.daemon.streams.live import NO_MARK, Live, mark_of
from offload.daemon.streams.registry import Registry
from offload.daemon.streams.requests import Fork
from offload.daemon.streams.store import Streams
from offload.daemon.threads import in_threads
from offload.load import Load, LoadConflict
from offload.operations.export_state import ExportBegun, Source
from seglog.aio.topic import AsyncTopic
from tests.simulation import mutants as mistakes

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """`patches` are the names of the shipped code and what takes their place. `also` is a mistake of the simulation."""

    scene: str
    pair: tuple[str, str]
    seed: int
    patches: tuple[tuple[Any, str, Any], ...] = ()
    also: str = ""

    @contextlib.contextmanager
    def in_place(self) -> Any:
        with contextlib.ExitStack() as stack:
            for target, name, mistake in self.patches:
                stack.enter_context(mock.patch.object(target, name, mistake))
            if self.also:
                stack.enter_context({**mistakes.MUTANTS, **mistakes.PROMOTION_MUTANTS}[self.also]())
            yield


async def _stores_an_old_mark(self: Live) -> None:
    self._epoch, head = self.topic.epoch, self.topic.head_seq
    self.mark, self.has_end = NO_MARK, False
    if head > max(self.entry.base, self.entry.own):
        pool = self._service.read_threads(self.topic, head)
        last = await in_threads(pool, lambda: next(self.topic.read(head, head), None))
        if last is not None:
            self.mark = mark_of(last.tag)
            self.has_end = self.mark.is_closed and not last.value
    self._is_known = True


def _numbers_branches(source: Live, name: str) -> str:
    number = source._service.sync.topic("_streams").head_seq
    return f"{source.entry.topic.partition('@')[0]}@{name[:100]}_g{number}"


async def _looks_at_the_source_outside_its_lock(self: Streams, path: str) -> None:
    entry = self._registry.find(path)
    if entry is None or not self._registry.is_waiting(path):
        return
    async with self._locked(path):
        if self._registry.find(path) == entry:
            if entry.state is State.SOFT:
                entry = await self._registry.put(replace(entry, state=State.DYING))
            await self._try_to_end(entry)


def _sweeps_no_source(self: Registry) -> tuple[str, ...]:
    return tuple(path for path in self._waiting if self._entries[path].state is not State.SOFT)


def _keeps_without_a_look(self: OpenAnswers, scope: Any) -> None:
    task = asyncio.current_task()
    if task is not None:
        self._scopes[task] = scope


def _leaves_out_what_readers_do_not_see(self: Source, begun: ExportBegun) -> int | None:
    at = None if begun.target is None else self._target(begun)
    return self._first_seq(at) or begun.last_seq + 1


def _looks_once(volumes: Volumes, oplog: Oplog) -> tuple[Any, NumberedEntry | None]:
    return mock.ANY, _newest(volumes, oplog)[1]


async def _forks_beside_a_closure(_service: Service, source: Live, _fork: Fork) -> tuple[int, bytes]:
    await asyncio.sleep(0)
    return source.topic.head_seq, b""


async def _takes_any_incarnation(self: AsyncTopic, values: Any, *, if_incarnation: Any = None, **named: Any) -> Any:
    return await _append_once(self, values, **named)


_is_maintenance, _promote, _newest, _append_once = (
    Updates.is_maintenance, Branches.promote, name_undo._newest, AsyncTopic.append_once,
)  # fmt: skip


def _passes_its_own_epoch(volumes: Volumes, load: Load, base: Snapshot) -> Snapshot:
    updates = pull(volumes, load.vid, base.lsn, base.head_hash)
    newest = volumes.snapshot(load.vid, updates.lsn)
    if updates.is_empty or not _is_maintenance(updates, load.bounds, load.epoch):
        raise LoadConflict(load.name, base.lsn + 1, "")
    return newest


def _promotes_what_the_names_lead_to(
    self: Branches, topic: str, branch: str, keep: str, _vids: tuple[Vid, Vid], **more: Any
) -> Any:
    found = self.resolve(topic, MAIN), self.resolve(topic, branch)
    return _promote(self, topic, branch, keep, found, **more)


MUTANTS: Mapping[str, Mutant] = {
    "a request stores a mark over a newer one": Mutant(
        "streams", ("close", "read"), 41, ((Live, "_read_mark", _stores_an_old_mark),)
    ),
    "two forks get one branch": Mutant(
        "streams", ("fork", "fork beside"), 1, ((store, "branch_name", _numbers_branches),)
    ),
    "a fork looks at its source outside the lock": Mutant(
        "streams",
        ("delete", "delete the fork"),
        152,
        ((Streams, "_settle", _looks_at_the_source_outside_its_lock), (Registry, "waiting", _sweeps_no_source)),
    ),
    "a follower waits without a second look at its token": Mutant(
        "tokens", ("revoke", "follow"), 13, ((OpenAnswers, "keep", _keeps_without_a_look),)
    ),
    "a body comes after its token is gone": Mutant(
        "tokens", ("revoke", "follow by command"), 27, ((OpenAnswers, "check_again", lambda *_: None),)
    ),
    "a load passes a takeover": Mutant(
        "archives", ("load and take over", "take over"), 1, ((load, "_after", _passes_its_own_epoch),)
    ),
    "a promotion moves names that lead elsewhere": Mutant(
        "archives",
        ("promote", "promote another and append"),
        37,
        ((Branches, "promote", _promotes_what_the_names_lead_to),),
    ),
    "an export lacks records of the state in its manifest": Mutant(
        "commands", ("delete", "offload and export"), 94, ((Source, "_first_of", _leaves_out_what_readers_do_not_see),)
    ),
    "an undo takes an older change back": Mutant(
        "archives", ("undo", "undelete the branch"), 75, ((name_undo, "_newest", _looks_once),)
    ),
    "a fork takes an end for a record": Mutant(
        "streams", ("close", "fork"), 6, ((store, "divergence", _forks_beside_a_closure),)
    ),
    "a batch is in another incarnation": Mutant(
        "topics",
        ("delete topic", "append to the incarnation"),
        13,
        ((AsyncTopic, "append_once", _takes_any_incarnation),),
    ),
    "gc does not look again": Mutant("archives", ("sweep", "pin"), 2, also="gc looks once"),
    "gc raises no boundary": Mutant("archives", ("sweep", "restore"), 17, also="gc raises no boundary"),
    "a name is changed whatever is there": Mutant(
        "archives", ("promote another", "rename the branch"), 188, also="a promotion does not compare"
    ),
    "a reset does not look what came meanwhile": Mutant(
        "commands", ("append", "reset"), 4, also="a reset does not look what came meanwhile"
    ),
}
