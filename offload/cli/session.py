"""What every command needs: the data directory, the remote, how to print. Opened late, closed in order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offload.cli.output import output
from offload.errors import NoDaemon

if TYPE_CHECKING:
    from offload.archive import Archive
    from offload.catalog_settings import CatalogSettings
    from offload.client import DaemonClient
    from offload.cold_settings import ColdSettings
    from offload.settings import OffloadSettings
    from seglog import Log, LogSettings

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
    """`orders@main` is `orders`."""
    return name.removesuffix("@main") if name else name


TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="TOPIC or TOPIC@BRANCH.", callback=without_main)]


def with_branch(topic: str, branch: str | None) -> str:
    """The topic, or with --branch, the branch of it."""
    return f"{topic}@{branch}" if branch and branch != "main" else topic


@dataclass(frozen=True, slots=True)
class Session:
    """The global options. `remote` overrides the `[remote]` section of seglog.toml."""

    directory: Path
    remote: str | None
    as_json: bool
    debug: bool

    def daemon(self) -> DaemonClient | None:
        """The one that holds the directory, if there is one."""
        from offload.client import DaemonClient

        return DaemonClient.of(self.directory)

    @property
    def is_ending(self) -> bool:
        """Whether a command that would wait for more should end: the daemon that runs it stops."""
        return False

    def retry(self, _name: str, /) -> None:
        """The daemon's; here there is none. Raises `NoDaemon`."""
        raise NoDaemon(self.directory)

    def work(self, _name: str, /) -> dict[str, object]:
        """What the daemon knows of a topic's offload; without one there is nothing to know."""
        return {}

    def log_settings(self) -> LogSettings:
        """Of seglog.toml and the environment."""
        import seglog

        return seglog.load_settings(self.directory / seglog.SETTINGS_FILE, os.environ)

    def remote_url(self) -> str:
        """Of --remote, the environment or seglog.toml. Raises `NoRemote`."""
        from offload.errors import NoRemote
        from offload.settings import load_archive_settings
        from seglog import SETTINGS_FILE

        url = self.remote or load_archive_settings(self.directory / SETTINGS_FILE, os.environ)[0]
        if not url:
            raise NoRemote(self.directory)
        return url

    def offload_settings(self) -> OffloadSettings:
        """Of seglog.toml and the environment."""
        from offload.settings import load_archive_settings
        from seglog import SETTINGS_FILE

        return load_archive_settings(self.directory / SETTINGS_FILE, os.environ)[1]

    def cold_settings(self) -> ColdSettings:
        """Of seglog.toml and the environment."""
        from offload.cold_settings import load_cold_settings
        from seglog import SETTINGS_FILE

        return load_cold_settings(self.directory / SETTINGS_FILE, os.environ)

    def catalog_settings(self) -> CatalogSettings:
        """Of seglog.toml and the environment."""
        from offload.catalog_settings import load_catalog_settings
        from seglog import SETTINGS_FILE

        return load_catalog_settings(self.directory / SETTINGS_FILE, os.environ)

    @contextmanager
    def log(self, *, read_only: bool = False) -> Iterator[Log]:
        """The log alone, without its remote."""
        import seglog

        with seglog.open(self.directory, create=False, read_only=read_only, settings=self.log_settings()) as log:
            yield log

    @contextmanager
    def archive(self, *, read_only: bool = False) -> Iterator[tuple[Log, Archive]]:
        """The log with its remote. Raises `NoRemote` if none is configured."""
        with (
            self.log(read_only=read_only) as log,
            self._attach(log) as archive,
        ):
            yield log, archive

    @contextmanager
    def log_and_maybe_archive(self, *, read_only: bool = False) -> Iterator[tuple[Log, Archive | None]]:
        """The log, with its remote if one is configured."""
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

        return offload.attach(
            log,
            self.remote,
            settings=self.offload_settings(),
            cold=self.cold_settings(),
            upkeep=self.catalog_settings(),
        )


def session_of(context: typer.Context) -> Session:
    session = context.find_root().obj
    assert isinstance(session, Session)  # noqa: S101 - the app's callback sets it
    return session


def emit(session: Session, value: Mapping[str, Any], text: str) -> None:
    """A command's result on stdout: `text` for people, `value` as one line of JSON with --json."""
    output().text((json.dumps(value) if session.as_json else text) + "\n")


def say(text: str) -> None:
    """Progress and notes, on stderr."""
    output().note(text)


def format_time(ts_ms: int) -> str:
    """UTC, with milliseconds: what a restore target takes back unchanged. Beyond the year 9999 it is a number of ms."""
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
