"""Commands on a terminal, one after the other, as the process of `test_screens.py`: `python -m tests.cli.screens`.

The process makes the data directory itself, with a clock and random bytes of its own. So each run prints the same
times and ids. Before each command it clears the screen. After each it sets the title of the terminal to DONE, and waits
for a line.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import termios
from collections.abc import Callable, Mapping
from pathlib import Path

import offload
import offload.context
import seglog
from offload.cli.execution import Bar
from offload.main import main
from seglog import SystemClock
from tests.seams.limits import Limit

__all__ = ["DONE", "SHOWN"]

DONE = "\x1b]2;done\x07"
_NOW_MS = 1_795_255_200_000  # 2026-11-21T10:00:00Z
_MINUTE_MS = 60_000

#: The commands of the screens, by the names of their golden files.
SHOWN: Mapping[str, str] = {
    "status": "status",
    "log": "log orders",
    "log-graph": "log orders --graph",
    "points": "points orders",
    "resolve": "resolve orders --to lsn:2",
    "branch-list": "branch list orders",
    "diff": "diff orders orders@fix --records",
    "delete-question": "delete orders --before 5",
    "delete-most-question": "delete orders --before 9",
    "error": "read nope",
    "progress": "",
}


class _Clock:
    """The time of this process. Each change of the data directory is a minute after the one before."""

    ms = _NOW_MS - 60 * _MINUTE_MS

    def now_ms(self) -> int:
        return self.ms


def _prepare() -> None:
    clock, remote = _Clock(), Path("remote").absolute().as_uri()
    with seglog.open(Path("data"), clock=clock) as log, offload.attach(log, remote, clock=clock) as archive:

        def ship(name: str, *values: bytes, tag: str | None = None) -> None:
            clock.ms += _MINUTE_MS
            archive.open_for_append(name).append(list(values), tag=tag)
            log.topic(name).seal()
            archive.offload(name)

        ship("orders", b"apples, 3", b"pears, 1", b"plums, 12", tag="web")
        ship("orders", b"cherries, 40", b"figs, 2")
        archive.tags.tag("orders", "v1", message="before the import")
        clock.ms += _MINUTE_MS
        archive.delete("orders", tag="web", message="the import was wrong")
        clock.ms += _MINUTE_MS
        archive.restore("orders", to="head~1", name="fix", message="what was there before")
        ship("orders@fix", b"quinces, 5")
        ship("orders", b"dates, 100", b"olives, 7", b"kiwis, 9")
        log.topic("orders").append([b"limes, 8"])
        archive.open_for_append("access").append([b"GET /"])
    Path("data", "seglog.toml").write_text(f'[remote]\nurl = "{remote}"\n')


def _show_progress() -> None:
    """Show a bar that is halfway, until a line comes."""
    name, _, attribute = Limit.PROGRESS_AFTER_S.value.rpartition(".")
    setattr(sys.modules[name], attribute, 0.2)
    bar = Bar("offload orders", 20_000_000)
    bar.advance(10_000_000)
    sys.stdin.readline()
    bar.close()


def _in_child(act: Callable[[], None]) -> None:
    child = os.fork()
    if not child:
        code = 0
        try:
            act()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.waitpid(child, 0)


def _run(words: str) -> None:
    sys.argv = ["seglog", "-C", "data", *words.split()]
    main()


def _without_echo() -> None:
    modes = termios.tcgetattr(0)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, modes)


def _pretend() -> None:
    """Let the clock stand still, the random bytes come from a seed, and the machine have a name for tests."""
    os.urandom = random.Random(7).randbytes  # type: ignore[assignment]
    SystemClock.now_ms = lambda _: _NOW_MS  # type: ignore[method-assign]
    offload.context.host_name = lambda: "machine"


if __name__ == "__main__":
    signal.alarm(300)
    _pretend()
    _without_echo()
    _prepare()
    for words in (*SHOWN.values(), *SHOWN.values()):  # on each of two sizes of the terminal
        sys.stdout.write("\x1b[2J\x1b[H")
        sys.stdout.flush()
        _in_child((lambda words=words: _run(words)) if words else _show_progress)  # type: ignore[misc]
        sys.stdout.write(DONE)
        sys.stdout.flush()
        sys.stdin.readline()
