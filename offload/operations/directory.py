"""The data directory that a command works on, and the process that holds it open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from offload.errors import NoRemote, OffloadError
from seglog.base.errors import Misuse

if TYPE_CHECKING:
    from catalog.gc.policy import Watch
    from offload.archive import Archive
    from seglog import Log

__all__ = ["Directory", "Host", "NoDaemon", "RequestsSeen", "Tell", "Work", "watch_of"]

Tell = Callable[[str, int | None, int, str], None]
"""Takes the progress of a phase: its title, the total or None, the part that is done, and the unit.

The unit is `bytes`, or a noun such as `volumes`. A new title begins a new phase.
"""


class NoDaemon(Misuse, OffloadError):
    path: Path
    message = "no daemon serves {path}"
    hint = "start one: seglog serve"


def watch_of(tell: Tell, title: str) -> Watch:
    """Return a function that takes the progress of phases by their own names, and tells it with `title` before them."""
    return lambda phase, done, total, unit: tell(f"{title}, {phase}", total, done, unit)


@dataclass(frozen=True, slots=True)
class Work:
    """The daemon's state of a topic's offload."""

    is_offloading: bool
    failures: int
    last_error: str | None
    retry_in_s: float | None


@dataclass(frozen=True, slots=True)
class RequestsSeen:
    """The requests that a process made to the store, by method, in the last `covers_s` seconds: a day at most."""

    covers_s: float
    methods: Mapping[str, int]


class Host(Protocol):
    """The port to the process that runs the command: the command line, or the daemon."""

    @property
    def is_ending(self) -> bool:
        """Return whether the process stops, so that a waiting command should end."""
        ...

    @property
    def serves_others(self) -> bool:
        """Return whether the process has other clients, which wait while it looks for a pattern."""
        ...

    @property
    def takes_lines(self) -> bool:
        """Return whether the process takes records as lines alone, without their seqs, times and labels."""
        ...

    def check_listener(self) -> None:
        """Raise `BrokenPipeError` if nothing takes the results any more."""
        ...

    def progress(self, title: str, total_bytes: int | None) -> AbstractContextManager[Callable[[int], None]]:
        """Yield a function that takes the number of bytes done since its last call."""
        ...

    def phases(self) -> AbstractContextManager[Tell]:
        """Yield a function that takes the progress of an operation with several phases, or without bytes."""
        ...

    def requests(self) -> RequestsSeen | None:
        """Return the requests that the daemon made to the store, or None without a daemon."""
        ...

    def retry(self, name: str, /) -> None:
        """Let the daemon try a failed offload again. Raises `NoDaemon` without a daemon."""
        ...

    def work(self, name: str, /) -> Work | None:
        """Return the daemon's state of a topic's offload, or None without a daemon."""
        ...


@dataclass(frozen=True, slots=True)
class Directory:
    """A data directory, and the process that holds it. On the command line, its first use opens it.

    So a command checks its arguments first, and wrong ones open nothing. `opened` returns the log and its archive.
    """

    opened: Callable[[], tuple[Log, Archive | None]]
    host: Host

    @property
    def log(self) -> Log:
        return self.opened()[0]

    @property
    def maybe_archive(self) -> Archive | None:
        """Return the archive, or None if the directory has no remote."""
        return self.opened()[1]

    @property
    def archive(self) -> Archive:
        """Return the archive. Raises `NoRemote`."""
        log, archive = self.opened()
        if archive is None:
            raise NoRemote(log.path)
        return archive

    @contextmanager
    def watched(self, title: str) -> Iterator[Watch]:
        """Yield a function that takes the progress of phases, and tells it to the host with `title` before them."""
        with self.host.phases() as tell:
            yield watch_of(tell, title)

    @contextmanager
    def counting(self, title: str) -> Iterator[None]:
        """Show the progress of the work within, as the parts of the archive count it (seglog.base.progress)."""
        from seglog.base.progress import watching

        with self.host.phases() as tell:
            tell(title, None, 0, "commits")
            with watching(watch_of(tell, title)):
                yield
