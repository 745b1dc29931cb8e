"""Examine a remote: `seglog doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from catalog.errors import CatalogError
from catalog.format.ids import Sid
from catalog.format.keys import doctor_prefix
from catalog.objects import ObjectStore
from catalog.objects.examination import Examination
from catalog.objects.store_time import measured_ahead_ms
from offload.errors import ChecksFailed
from seglog import Clock

__all__ = ["CheckDone", "ClockAhead", "Left", "doctor"]

_OUTCOMES = {"kept": "ok", "broken": "failed", "skipped": "skipped"}


@dataclass(frozen=True, slots=True)
class CheckDone:
    """A check and its outcome: ok, failed or skipped. `reason` is empty if the outcome needs none."""

    check: str
    outcome: str
    proves: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClockAhead:
    """The time by which this machine's clock is ahead of the store's. It is negative if the clock is behind."""

    clock_ahead_ms: int


@dataclass(frozen=True, slots=True)
class Left:
    """The place of the objects of the checks, if they could not be deleted."""

    left: str
    reason: str


def doctor(store: ObjectStore, clock: Clock) -> Iterator[CheckDone | ClockAhead | Left]:
    """Check that a store keeps its promises, under a fresh prefix, and delete the objects of the checks.

    Raises `ChecksFailed` at the end if a check failed.
    """
    prefix = doctor_prefix(Sid.new(clock.now_ms()))
    examination = Examination(store, prefix)
    failed = 0
    try:
        for outcome in examination.outcomes():
            failed += outcome.state == "broken"
            yield CheckDone(outcome.check.name, _OUTCOMES[outcome.state], outcome.check.proves, outcome.reason)
        yield from _clock_ahead(store, clock)
    except GeneratorExit:
        examination.clean()
        raise
    except BaseException:
        yield from _cleaned(examination, f"{store.url}/{prefix}")
        raise
    yield from _cleaned(examination, f"{store.url}/{prefix}")
    if failed:
        raise ChecksFailed(failed, store.url)


def _clock_ahead(store: ObjectStore, clock: Clock) -> Iterator[ClockAhead]:
    try:
        ahead_ms = measured_ahead_ms(store, clock.now_ms)
    except CatalogError:
        return  # the checks have reported the trouble
    if ahead_ms is not None:
        yield ClockAhead(ahead_ms)


def _cleaned(examination: Examination, place: str) -> Iterator[Left]:
    reason = examination.clean()
    if reason:
        yield Left(place, reason)
