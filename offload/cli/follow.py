"""The command `seglog follow`: a line for each news, and on a terminal a table in its place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from offload.cli.execution import with_bars
from offload.cli.session import Session
from offload.cli.start import RoleArn, recovered_text, tenant_of
from offload.cli.stopped import told
from offload.operations.command import About, Command
from offload.operations.printing import ago_text, counted
from seglog.interrupts import closed_after

if TYPE_CHECKING:
    from offload.operations.command import Tell
    from offload.operations.standby import Looked, LookFailed, TopicFollowed, TopicUnfollowed
    from offload.recovery import Recovered

    Shown = Recovered | TopicFollowed | TopicUnfollowed | LookFailed | Looked

_GONE = "deleted, renamed or promoted in the remote, and not followed any more"
_COLUMNS = ("topic", "role", "seq", "lsn", "newest record", "lag", "state")


def follow(
    session: Session,
    url: Annotated[str, About("The remote: s3://bucket/prefix, file:///path, or https://host:7373.", metavar="URL")],
    directory: Annotated[Path, About("The data directory, new or made from this remote.", metavar="DIR")],
    interval: Annotated[float, About("Seconds between looks.", least=0.05)] = 5.0,
    once: Annotated[bool, About("Look once, and end: for scripts.")] = False,
    role_arn: RoleArn = None,
) -> None:
    """Keep a standby that follows a remote. It is a data directory with every topic and branch, for the machine that
    writes.

    The first time, the command makes the directory, as `recover` does. Then it looks for new commits again and again,
    until an interrupt. New topics come along. Each line tells how far readers here were behind, in records and
    seconds. The command shows a failure of the store, and tries again after a pause that grows.

    Other commands may read the directory meanwhile. If the writer is lost, stop this command: the first append to a
    topic, or `takeover`, makes this directory its writer. Example: seglog follow s3://my-bucket/acme standby
    """
    from offload.operations import standby

    def run(tell: Tell) -> Iterator[Shown]:
        options = standby.FollowOptions(
            once=once,
            interval_s=interval,
            variables=dict(os.environ),
            tenant=tenant_of(url, role_arn),
            on_progress=lambda done, total: tell("follow", total, done, "topics"),
        )
        return standby.follow(directory, url, options)

    line = (
        f"stopped: `seglog follow {url} {directory}` continues, "
        f"`seglog -C {directory} takeover TOPIC` makes this directory the writer"
    )
    bars = with_bars(run, is_shown=session.shows_progress)
    with told(lambda: line), session.one_command(), closed_after(bars) as results:
        _show(session, results, once=once)


def _show(session: Session, results: Iterator[Shown], *, once: bool) -> None:
    from offload.operations.standby import Looked, LookFailed, TopicFollowed, TopicUnfollowed
    from offload.recovery import Recovered

    output = session.output
    failing: set[str | None] = set()
    with ExitStack() as stack:
        screen = _Screen(stack) if output.is_rich and not once else None
        for look in results:
            if screen is not None:
                screen.take(look)
            if screen is not None and screen.is_open:
                continue
            match look:
                case Recovered():
                    output.show(look, recovered_text(look))
                case TopicFollowed():
                    if once or look.commits or failing & {look.topic, None}:
                        output.show(look, _followed_text(look))
                    failing -= {look.topic, None}
                case TopicUnfollowed(name):
                    output.show(look, f"{name}: {_GONE}")
                case LookFailed():
                    failing.add(look.topic)
                    if output.is_json:
                        output.show(look, "")
                    else:
                        output.note(_failed_text(look, once=once))
                case Looked() if once:
                    failed = f", {look.failed:,} failed" if look.failed else ""
                    output.show(look, f"looked at {counted(look.topics, 'topic')}{failed}")
            output.flush()


def _followed_text(look: TopicFollowed) -> str:
    point = f"seq {look.head_seq:,} (lsn {look.lsn})"
    if look.role == "writer":
        return f"{look.topic}: written here, at {point}, and not followed"
    if not look.commits:
        return f"{look.topic}: nothing new, at {point}, no lag"
    return f"{look.topic}: took in {counted(look.commits, 'commit')}, now at {point}; was {_lag(look)} behind"


def _failed_text(failure: LookFailed, *, once: bool = False) -> str:
    times = "" if failure.failures == 1 else f" {failure.failures} times in a row"
    lag = "" if failure.lag_s is None else f"; readers are at the state of {ago_text(timedelta(seconds=failure.lag_s))}"
    again = "" if once else f"; next try in {failure.retry_in_s:.1f} s"
    return f"{failure.topic or 'follow'}: failed{times}: {failure.error}{lag}{again}"


def _lag(look: TopicFollowed) -> str:
    seconds = "" if look.lag_s is None else f" and {look.lag_s:.1f} s"
    return f"{counted(look.lag_records)}{seconds}"


class _Screen:
    """The table of all topics. It opens with the end of the first look, and closes with `stack`."""

    def __init__(self, stack: ExitStack) -> None:
        self.is_open = False
        self._stack = stack
        self._rows: dict[str, list[str]] = {}
        self._failed: dict[str | None, str] = {}
        self._shown: Callable[[str], None] | None = None

    def take(self, look: Shown) -> None:
        from offload.operations.standby import Looked, LookFailed, TopicFollowed, TopicUnfollowed

        if isinstance(look, LookFailed):
            self._failed[look.topic] = _failed_text(look)
        elif isinstance(look, TopicUnfollowed):
            self._rows.pop(look.topic, None)
            self._failed.pop(look.topic, None)
        elif isinstance(look, Looked):
            self._open()
            self._draw()
        elif isinstance(look, TopicFollowed):
            self._put(look.topic, look.role, look.head_seq, look.lsn, str(look.last_time or ""), _cell(look))
        else:
            self._put(look.topic, "replica", look.head_seq, look.lsn, str(look.tail_after_time or ""), "")

    def _put(self, topic: str, role: str, seq: int, lsn: int, newest: str, lag: str) -> None:
        """Keep the row of a topic. Its look worked, so the store is there."""
        for key in (topic, None):
            self._failed.pop(key, None)
        before = self._rows.get(topic)
        self._rows[topic] = [topic, role, f"{seq:,}", str(lsn), newest, lag or (before[5] if before else "none")]

    def _open(self) -> None:
        if not self.is_open:
            from offload.cli.render import Screen

            screen = Screen()
            self._stack.callback(screen.close)
            self._shown, self.is_open = screen.show, True

    def _draw(self) -> None:
        from offload.cli.render import table

        assert self._shown is not None  # noqa: S101 - it is open
        rows = [[*row, "failed" if row[0] in self._failed else "follows"] for row in self._rows.values()]
        self._shown("\n".join([table(_COLUMNS, rows), *self._failed.values()]))


def _cell(look: TopicFollowed) -> str:
    """Return the lag that this look found. If it found none, return "": the table keeps the former one."""
    return f"was {_lag(look)}" if look.commits else ""


FOLLOW = Command("follow", follow, section="replicate")
