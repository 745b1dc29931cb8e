"""The command `seglog doctor`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from offload.cli.session import Session, emit, say, session_of

if TYPE_CHECKING:
    from catalog.objects import ObjectStore
    from catalog.objects.examination import Examination, Outcome

__all__ = ["doctor"]

_WORDS = {"kept": "ok", "broken": "FAILED", "skipped": "skipped"}


def doctor(context: typer.Context) -> None:
    """Check that the remote does what seglog needs of a store, and that this role may do it.

    Every promise is tried, races included, in about 290 requests that send 37 MB, under a fresh prefix doctor/.../
    within the remote's own; what they make is removed again. With --remote before the command no data directory is
    needed. What a role may not do, such as to delete, is skipped.

    Also told is how far this machine's clock is from the store's. Exit code 1 if a check failed.
    """
    from catalog.format.gid import Sid
    from catalog.format.keys import doctor_prefix
    from catalog.objects.examination import Examination
    from seglog import SystemClock

    session = session_of(context)
    clock = SystemClock()
    with session.remote_store() as store:
        prefix = doctor_prefix(Sid.new(clock.now_ms()))
        examination = Examination(store, prefix)
        try:
            failed = sum([_tell(session, outcome) for outcome in examination.outcomes()])
            _tell_time(session, store, clock.now_ms)
        finally:
            _clean(session, examination, f"{store.url}/{prefix}")
        place = store.url
    if failed:
        count = "1 check" if failed == 1 else f"{failed} checks"
        say(
            f"seglog: {count} failed at {place}. See docs/stores.md for what a store needs, and what follows without it"
        )
        raise typer.Exit(1)


def _tell(session: Session, outcome: Outcome) -> bool:
    """Print the outcome of a check, and return whether the check failed."""
    word = _WORDS[outcome.state]
    check = outcome.check
    value = {"check": check.name, "outcome": word.lower(), "proves": check.proves, "reason": outcome.reason}
    emit(session, value, f"{word:8}{check.name}: {outcome.reason or check.proves}")
    return outcome.state == "broken"


def _tell_time(session: Session, store: ObjectStore, now_ms: Callable[[], int]) -> None:
    from catalog.errors import CatalogError
    from catalog.objects.store_time import measured_ahead_ms

    try:
        ahead = measured_ahead_ms(store, now_ms)
    except CatalogError:
        return  # the checks have reported the trouble
    if ahead is None:
        return
    text = (
        f"at least {abs(ahead) / 1000:.1f} s {'ahead of' if ahead > 0 else 'behind'} the store's" if ahead else "right"
    )
    emit(session, {"clock_ahead_ms": ahead}, f"{'clock':8}this machine's is {text}")


def _clean(session: Session, examination: Examination, place: str) -> None:
    reason = examination.clean()
    if not reason:
        return
    if session.as_json:
        emit(session, {"left": place, "reason": reason}, "")
    else:
        say(f"seglog: what was tried stays in {place}: {reason}")
