"""The command `seglog doctor`."""

from __future__ import annotations

from offload.cli.output import note
from offload.cli.session import Session

__all__ = ["doctor"]

_WORDS = {"ok": "ok", "failed": "FAILED", "skipped": "skipped"}


def doctor(session: Session) -> None:
    """Check that the remote keeps the promises that seglog needs, and that this role may use them.

    The command tries every promise, races included, with about 290 requests that send 37 MB. It works under a fresh
    prefix doctor/.../ within the remote's own, and then removes its objects. It skips requests that the role may not
    make, such as deletes. With --remote before the command, it needs no data directory.

    It also shows how far this machine's clock is from the store's. If a check failed, the exit code is 1.
    """
    from offload.commands import doctor as use
    from seglog import SystemClock

    output = session.output
    with session.remote_store() as store:
        for found in use.doctor(store, SystemClock()):
            match found:
                case use.CheckDone(check, outcome, proves, reason):
                    output.show(found, f"{_WORDS[outcome]:8}{check}: {reason or proves}")
                case use.ClockAhead(ahead_ms):
                    output.show(found, f"{'clock':8}this machine's is {_clock(ahead_ms)}")
                case use.Left(place, reason) if not output.is_json:
                    note(f"seglog: what was tried stays in {place}: {reason}")
                case use.Left():
                    output.show(found, "")


def _clock(ahead_ms: int) -> str:
    if not ahead_ms:
        return "right"
    return f"at least {abs(ahead_ms) / 1000:.1f} s {'ahead of' if ahead_ms > 0 else 'behind'} the store's"
