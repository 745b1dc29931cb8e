"""The command `seglog doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from offload.cli.session import Output, Session
from offload.errors import ChecksFailed, Misuse
from offload.operations.command import About, Command
from seglog import SETTINGS_FILE

if TYPE_CHECKING:
    from catalog.objects import ObjectStore
    from offload.operations.doctor import CheckDone, ClockAhead, Left

_WORDS = {"ok": "ok", "failed": "FAIL", "skipped": "skipped", "warn": "warn", "fail": "FAIL"}


def doctor(
    session: Session,
    spark: Annotated[bool, About("Check that Spark reads the remote, on every executor.")] = False,
    master: Annotated[
        str | None, About("With --spark: the cluster. By default Spark's configuration names it.")
    ] = None,
) -> None:
    """Check directory, machine and remote. The remote has to keep the promises that seglog needs.

    In a data directory, the command first checks free disk, the time of a sync, limits of files, permissions, the
    daemon's certificate, that a daemon answers, and that no other package has a name of ours. A line says `ok`, `warn`
    or `FAIL`, with what to do. Without a remote, these checks are all.

    For the remote, the command tries every promise, races included, with about 290 requests that send 37 MB. It works
    under a fresh prefix doctor/.../ within the remote's own, and then removes its objects. It skips requests that the
    role may not make, such as deletes. With --remote before the command, it needs no data directory.

    It also shows how far this machine's clock is from the store's. If a check failed, the exit code is 1.

    With --spark, the command starts a session of Spark in place of these checks. It examines Java, the jar, the
    planner, Python on the executors, and reads from each executor with both readers. So it needs a role that may write.
    """
    if master is not None and not spark:
        raise Misuse("--master goes with --spark")
    output = session.output
    failed: ChecksFailed | None = None
    is_directory = not spark and (session.directory / SETTINGS_FILE).is_file()
    if is_directory:
        try:
            _check_directory(session)
        except ChecksFailed as error:
            failed = error
    if not is_directory or session.remote or session.settings().url:
        with session.remote_store() as store:
            for finding in _findings(session, store, master, spark=spark):
                _show(output, finding)
    if failed is not None:
        raise failed


def _check_directory(session: Session) -> None:
    """Show the checks of the directory. Raises `ChecksFailed`."""
    from offload.operations.doctor import doctor_directory
    from seglog import SystemClock

    now_ms = SystemClock().now_ms()
    settings = session.settings()
    reject_bytes = settings.log.disk_reject_bytes
    for check in doctor_directory(session.directory, settings.serve, now_ms, reject_bytes=reject_bytes):
        advice = f". To do: {check.advice}" if check.advice else ""
        session.output.show(check, f"{_WORDS[check.outcome]:8}{check.check}: {check.found}{advice}")


def _findings(
    session: Session, store: ObjectStore, master: str | None, *, spark: bool
) -> Iterator[CheckDone | ClockAhead | Left]:
    from seglog import SystemClock

    if not spark:
        from offload.operations.doctor import doctor as examine

        return examine(store, SystemClock())
    from offload.operations.doctor_spark import doctor_spark, start_session
    from offload.wiring import source_of

    settings = session.settings()
    source = source_of(settings, store.url)
    return doctor_spark(lambda: start_session(master), store.url, SystemClock(), settings.offload, source)


def _show(output: Output, finding: CheckDone | ClockAhead | Left) -> None:
    from offload.operations import doctor as use

    match finding:
        case use.CheckDone(check, outcome, proves, reason):
            output.show(finding, f"{_WORDS[outcome]:8}{check}: {reason or proves}")
        case use.ClockAhead(ahead_ms):
            output.show(finding, f"{'clock':8}this machine's is {_clock(ahead_ms)}")
        case use.Left(url, reason) if not output.is_json:
            output.note(f"seglog: what was tried stays in {url}: {reason}")
        case use.Left():
            output.show(finding, "")


def _clock(ahead_ms: int) -> str:
    if not ahead_ms:
        return "right"
    return f"at least {abs(ahead_ms) / 1000:.1f} s {'ahead of' if ahead_ms > 0 else 'behind'} the store's"


DOCTOR = Command("doctor", doctor, section="repair")
