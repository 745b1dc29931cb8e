"""The command `seglog follow`: a line for each news, and on a terminal a table in its place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from offload.cli.execution import with_bars
from offload.cli.session import Session
from offload.cli.start import recovered_text
from offload.cli.stopped import told
from offload.cli.tenant_role import RoleArn, tenant_of
from offload.operations.command import About, Command
from offload.operations.printing import ago_text, counted
from seglog.process import closed_after

if TYPE_CHECKING:
    from offload.operations.command import Tell
    from offload.operations.follow import Looked, LookFailed, TopicFollowed, TopicUnfollowed
    from offload.recovery import Recovered

    Shown = Recovered | TopicFollowed | TopicUnfollowed | LookFailed | Looked

__all__ = [
    "FOLLOW",
    "follow",
]

_GONE = "deleted, renamed or promoted in the remote, and not followed any more"
_COLUMNS = ("topic", "role", "seq", "lsn", "newest record", "lag", "state")


def follow(
    session: Session,
    url: Annotated[str, About("The remote: s3://bucket/prefix or file:///path.", metavar="URL")],
    directory: Annotated[Path, About("The data directory, new or made from this remote.", metavar="DIR")],
    interval: Annotated[float, About("Seconds between looks.", least=0.05)] = 5.0,
    once: Annotated[bool, About("Look once, and end: for scripts.")] = False,
    role_arn: RoleArn = None,
) -> None:
    """Keep a data directory that follows every topic and branch of a remote: a standby for the machine that writes.

    The first time, the command makes the directory, as `recover` does. Then it looks for new commits again and again,
    until an interrupt. New topics come along. Each line tells how far readers here were behind, in records and
    seconds. The command shows a failure of the store, and tries again after a pause that grows.

    Other commands may read the directory meanwhile. If the writer is lost, stop this command: the first append to a
    topic, or `takeover`, makes this directory its writer. Example: seglog follow s3://my-bucket/acme standby
    """
    from offload.operations import follow as use

    def run(tell: Tell) -> Iterator[Shown]:
        options = use.FollowOptions(
            once=once,
            interval_s=interval,
            variables=dict(os.environ),
            tenant=tenant_of(url, role_arn),
            wait=time.sleep,
            on_progress=lambda done, total: tell("follow", total, done, "topics"),
        )
        return use.follow(directory, url, options)

    line = (
        f"stopped: `seglog follow {url} {directory}` continues, "
        f"`seglog -C {directory} takeover TOPIC` makes this directory the writer"
    )
    bars = with_bars(run, is_shown=session.shows_progress)
    with told(lambda: line), session.one_command(), closed_after(bars) as results:
        _show(session, results, once=once)


def _show(session: Session, results: Iterator[Shown], *, once: bool) -> None:
    from offload.operations.follow import Looked, LookFailed, TopicFollowed, TopicUnfollowed
    from offload.recovery import Recovered

    output = session.output
    failing: set[str | None] = set()
    with ExitStack() as stack:
        screen = _Screen(stack) if output.is_rich and not once else None
        for found in results:
            if screen is not None:
                screen.take(found)
            if screen is not None and screen.is_open:
                continue
            match found:
                case Recovered():
                    output.show(found, recovered_text(found))
                case TopicFollowed():
                    if once or found.commits or failing & {found.topic, None}:
                        output.show(found, _followed_text(found))
                    failing -= {found.topic, None}
                case TopicUnfollowed(name):
                    output.show(found, f"{name}: {_GONE}")
                case LookFailed():
                    failing.add(found.topic)
                    if output.is_json:
                        output.show(found, "")
                    else:
                        output.note(_failed_text(found, once=once))
                case Looked() if once:
                    failed = f", {found.failed:,} failed" if found.failed else ""
                    output.show(found, f"looked at {counted(found.topics, 'topic')}{failed}")
            output.flush()


def _followed_text(found: TopicFollowed) -> str:
    place = f"seq {found.head_seq:,} (lsn {found.lsn})"
    if found.role == "writer":
        return f"{found.topic}: written here, at {place}, and not followed"
    if not found.commits:
        return f"{found.topic}: nothing new, at {place}, no lag"
    return f"{found.topic}: took in {counted(found.commits, 'commit')}, now at {place}; was {_lag(found)} behind"


def _failed_text(found: LookFailed, *, once: bool = False) -> str:
    times = "" if found.failures == 1 else f" {found.failures} times in a row"
    lag = "" if found.lag_s is None else f"; readers are at the state of {ago_text(timedelta(seconds=found.lag_s))}"
    again = "" if once else f"; next try in {found.retry_in_s:.1f} s"
    return f"{found.topic or 'follow'}: failed{times}: {found.error}{lag}{again}"


def _lag(found: TopicFollowed) -> str:
    seconds = "" if found.lag_s is None else f" and {found.lag_s:.1f} s"
    return f"{counted(found.lag_records)}{seconds}"


class _Screen:
    """The table of all topics. It opens with the end of the first look, and closes with `stack`."""

    def __init__(self, stack: ExitStack) -> None:
        self.is_open = False
        self._stack = stack
        self._rows: dict[str, list[str]] = {}
        self._failed: dict[str | None, str] = {}
        self._shown: Callable[[str], None] | None = None

    def take(self, found: Shown) -> None:
        from offload.operations.follow import Looked, LookFailed, TopicFollowed, TopicUnfollowed

        if isinstance(found, LookFailed):
            self._failed[found.topic] = _failed_text(found)
        elif isinstance(found, TopicUnfollowed):
            self._rows.pop(found.topic, None)
            self._failed.pop(found.topic, None)
        elif isinstance(found, Looked):
            self._open()
            self._draw()
        elif isinstance(found, TopicFollowed):
            self._put(found.topic, found.role, found.head_seq, found.lsn, str(found.last_time or ""), _cell(found))
        else:
            self._put(found.topic, "replica", found.head_seq, found.lsn, str(found.tail_after_time or ""), "")

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


def _cell(found: TopicFollowed) -> str:
    """Return the lag that this look found. If it found none, return "": the table keeps the former one."""
    return f"was {_lag(found)}" if found.commits else ""


FOLLOW = Command("follow", follow)
