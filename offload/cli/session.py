"""The parts that every command needs: the data directory, the remote, the output.

A session opens the log and the remote when a command asks for them, and closes the remote before the log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offload.cli.output import output
from offload.errors import NoDaemon

if TYPE_CHECKING:
    from catalog.objects import ObjectStore
    from offload.archive import Archive
    from offload.client import DaemonClient
    from offload.settings_file import Settings
    from seglog import Log

__all__ = [
    "Session",
    "TopicName",
    "counted",
    "emit",
    "format_bytes",
    "format_time",
    "say",
    "session_of",
    "with_branch",
    "without_main",
]


def without_main(name: str | None) -> str | None:
    """Return the name without `@main`: `orders` for `orders@main`."""
    return name.removesuffix("@main") if name else name


TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="TOPIC or TOPIC@BRANCH.", callback=without_main)]


def with_branch(topic: str, branch: str | None) -> str:
    """Return the name of the topic, or of its branch if --branch gives one."""
    return f"{topic}@{branch}" if branch and branch != "main" else topic


@dataclass(slots=True)
class Session:
    """The global options of one command. `remote` overrides the `[remote]` section of seglog.toml."""

    directory: Path
    remote: str | None
    as_json: bool
    debug: bool
    _settings: Settings | None = field(default=None, init=False)

    def daemon(self) -> DaemonClient | None:
        """Return a client of the daemon that holds the directory, or None if there is none."""
        from offload.client import DaemonClient

        return DaemonClient.of(self.directory)

    @property
    def is_ending(self) -> bool:
        """Return whether the daemon that runs the command stops, so that a waiting command should end."""
        return False

    def retry(self, _name: str, /) -> None:
        """Let the daemon try a failed offload again. Raises `NoDaemon` here, as only a daemon offloads on its own."""
        raise NoDaemon(self.directory)

    def work(self, _name: str, /) -> dict[str, object]:
        """Return the daemon's state of a topic's offload. Without a daemon it is empty."""
        return {}

    def settings(self) -> Settings:
        """Return the settings of all sections. The first call of a command reads seglog.toml and the environment."""
        from offload.settings_file import read_settings
        from seglog import SETTINGS_FILE

        if self._settings is None:
            self._settings = read_settings(self.directory / SETTINGS_FILE, os.environ)
        return self._settings

    @contextmanager
    def remote_store(self) -> Iterator[ObjectStore]:
        """Yield the store behind --remote, the environment or seglog.toml. Raises `NoRemote`."""
        from offload.errors import NoRemote
        from offload.wiring import open_store

        settings = self.settings()
        url = self.remote or settings.url
        if not url:
            raise NoRemote(self.directory)
        with closing(open_store(url, settings.cold, settings.offload)) as store:
            yield store

    @contextmanager
    def log(self, *, read_only: bool = False) -> Iterator[Log]:
        """Yield the log, without its remote."""
        import seglog

        with seglog.open(self.directory, create=False, read_only=read_only, settings=self.settings().log) as log:
            yield log

    @contextmanager
    def archive(self, *, read_only: bool = False) -> Iterator[tuple[Log, Archive]]:
        """Yield the log and its archive. Raises `NoRemote` if no remote is configured."""
        with (
            self.log(read_only=read_only) as log,
            self._attach(log) as archive,
        ):
            yield log, archive

    @contextmanager
    def log_and_maybe_archive(self, *, read_only: bool = False) -> Iterator[tuple[Log, Archive | None]]:
        """Yield the log and its archive, or None for the archive if no remote is configured."""
        from offload.errors import NoRemote

        with self.log(read_only=read_only) as log:
            try:
                archive = self._attach(log)
            except NoRemote:
                yield log, None
                return
            with archive:
                yield log, archive

    def _attach(self, log: Log) -> Archive:
        import offload

        return offload.attach(log, self.remote, configured=self.settings())


def session_of(context: typer.Context) -> Session:
    session = context.find_root().obj
    assert isinstance(session, Session)  # noqa: S101 - the app's callback sets it
    return session


def emit(session: Session, value: Mapping[str, Any], text: str) -> None:
    """Print a command's result on stdout: `text` for people, or with --json `value` as one line of JSON."""
    output().text((json.dumps(value) if session.as_json else text) + "\n")


def say(text: str) -> None:
    """Print a note on stderr."""
    output().note(text)


def format_time(ts_ms: int) -> str:
    """Return a time in UTC with milliseconds, in the form that a restore target accepts.

    A time beyond the year 9999 becomes a number of milliseconds after 1970.
    """
    try:
        moment = datetime.fromtimestamp(ts_ms / 1000, UTC)
    except (OverflowError, ValueError):
        return f"{ts_ms} ms after 1970"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ts_ms % 1000:03d}Z"


def counted(count: int, noun: str = "record") -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
