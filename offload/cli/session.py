"""The parts that every command needs: the data directory, the remote, and the terminal.

A session opens the log and the remote when a command asks for them, and closes the remote before the log. The output is

    a pipe, a file, NO_COLOR, TERM=dumb, --plain    plain text, byte for byte the same everywhere
    a terminal                                      colours, tables, progress, and $PAGER for long output
    --json                                          one line of JSON for each result
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from offload.cli.stdio import Terminated, discard_output, flush_output, write_error, write_output
from offload.operations.result_json import json_line
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    import subprocess

    from catalog.objects import ObjectStore
    from offload.archive import Archive
    from offload.client import DaemonClient
    from offload.settings import Settings
    from seglog import Log, LogSettings


@dataclass(frozen=True, slots=True)
class Output:
    """Standard output, for the printers of the operations (offload.operations.printing)."""

    is_json: bool
    is_rich: bool = False
    is_verbose: bool = False

    def show(self, result: Any, text: str) -> None:
        if self.is_json:
            write_output(json_line(result))
        else:
            self.remark(text)

    def remark(self, text: str) -> None:
        if text and not self.is_json:
            write_output((self._painted(text) if self.is_rich else text) + "\n")

    def note(self, text: str) -> None:
        write_error(text + "\n")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        from offload.cli.render import table

        write_output(table(columns, rows))

    def write(self, data: bytes) -> None:
        try:
            sys.stdout.buffer.write(data)
        except BrokenPipeError:
            discard_output()

    def flush(self) -> None:
        flush_output()

    def _painted(self, text: str) -> str:
        from offload.cli.render import painted

        return painted(text)


_DEFAULT_PAGER = "less"
_LESS = "FRX"  # as git sets it: quit if the text fits, show colours, leave the text on the screen


def is_rich(stream: TextIO, variables: Mapping[str, str]) -> bool:
    """Return whether the stream is a terminal that wants more than plain text."""
    is_plain = bool(variables.get("NO_COLOR")) or variables.get("TERM", "dumb") == "dumb"
    return not is_plain and stream.isatty()


@contextmanager
def paged(variables: Mapping[str, str]) -> Iterator[None]:
    """Send standard output through the pager. Without a pager, the output goes straight to the terminal.

    At the end the call waits until the operator leaves the pager.
    """
    import shlex
    import subprocess

    words = shlex.split(variables.get("PAGER", _DEFAULT_PAGER))
    if not words or words == ["cat"]:
        yield
        return
    terminal = sys.stdout
    try:
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=terminal, env={"LESS": _LESS, **variables})
    except OSError:
        yield
        return
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    sys.stdout = stream = io.TextIOWrapper(
        process.stdin, encoding="utf-8", errors="surrogateescape", line_buffering=True
    )
    try:
        yield
    finally:
        last, sys.stdout = sys.stdout, terminal
        with suppress(BrokenPipeError):
            stream.close()
        if last is not stream:  # the pager has gone early, and /dev/null took its place
            last.close()
        _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait for the pager. It gets Ctrl-C as well, and decides itself what that means."""
    while True:
        try:
            process.wait()
        except Terminated:
            raise
        except KeyboardInterrupt:
            continue
        return


class Serve(Protocol):
    """The port to the daemon."""

    def __call__(
        self, directory: Path, settings: Settings, /, *, remote: str | None, debug: bool, tenants: bool = False
    ) -> None:
        """Hold the directory until a signal ends the daemon. With `tenants`, hold each directory below it."""


@dataclass(slots=True)
class Session:
    """The global options of one command. `remote` overrides the `[remote]` section of seglog.toml.

    `daemon_url` names a daemon of another machine. The command then uses no data directory here. `store_timeout_s`
    overrides `cold.store_timeout_s`.
    """

    directory: Path
    remote: str | None
    as_json: bool
    debug: bool
    serve: Serve
    is_plain: bool = False
    is_verbose: bool = False
    no_pager: bool = False
    daemon_url: str | None = None
    token_file: Path | None = None
    store_timeout_s: int | None = None
    _sections: dict[str, Any] | None = field(default=None, init=False)
    _output: Output | None = field(default=None, init=False)

    @property
    def output(self) -> Output:
        """Return standard output. It stays that of a terminal when a pager takes its place."""
        if self._output is None:
            is_rich = not self.as_json and self._is_rich(sys.stdout)
            self._output = Output(self.as_json, is_rich=is_rich, is_verbose=self.is_verbose)
        return self._output

    @property
    def shows_progress(self) -> bool:
        return self._is_rich(sys.stderr)

    def paged(self) -> AbstractContextManager[None]:
        """Return the context in which a command with a long output prints: for people, behind the pager."""
        return paged(os.environ) if self.output.is_rich and not self.no_pager else nullcontext()

    def _is_rich(self, stream: TextIO) -> bool:
        return not self.is_plain and is_rich(stream, os.environ)

    def daemon(self) -> DaemonClient | None:
        """Return a client of the daemon of `--daemon`, else of the directory's own one. Return None without one."""
        from seglog.client.address import is_served

        if self.daemon_url is None and not is_served(self.directory):
            return None
        from offload.client import DaemonClient

        if self.daemon_url is None:
            return DaemonClient(f"unix:{self.directory}")
        return DaemonClient(self.daemon_url, None if self.token_file is None else _token_in(self.token_file))

    def settings(self) -> Settings:
        """Return the settings of all sections. The first call of a command reads seglog.toml."""
        from offload.settings import Settings

        return Settings(self._read(), dict(os.environ))

    def log_settings(self) -> LogSettings:
        """Return the settings of the section [log]. A command that a daemon serves needs no others."""
        from seglog.values.config import LogSettings, from_section

        return from_section(LogSettings, self._read().get(LogSettings.SECTION, {}), os.environ)

    def _read(self) -> dict[str, Any]:
        from seglog.files.directory import read_sections
        from seglog.values.config import SETTINGS_FILE

        if self._sections is None:
            is_here = self.daemon_url is None
            self._sections = read_sections(self.directory / SETTINGS_FILE) if is_here else {}
        return self._sections

    @contextmanager
    def one_command(self) -> Iterator[None]:
        """Let all requests of the block to a store share one limit of time (catalog.objects.store_timeout)."""
        from catalog.objects.store_timeout import one_command

        with one_command(self.store_timeout_s):
            yield

    @contextmanager
    def remote_store(self) -> Iterator[ObjectStore]:
        """Yield the store behind --remote, the environment or seglog.toml. Raises `NoRemote`."""
        from offload.errors import NoRemote
        from offload.wiring import open_store, source_of

        settings = self.settings()
        url = self.remote or settings.url
        if not url:
            raise NoRemote(self.directory)
        source = source_of(settings, url)
        with self.one_command(), closing(open_store(url, settings.cold, settings.offload, source)) as store:
            yield store

    @contextmanager
    def log(self, *, read_only: bool = False) -> Iterator[Log]:
        """Yield the log, without its remote."""
        from seglog.log import open as open_log

        with open_log(self.directory, create=False, read_only=read_only, settings=self.log_settings()) as log:
            yield log

    @contextmanager
    def log_and_maybe_archive(self, *, read_only: bool = False) -> Iterator[tuple[Log, Archive | None]]:
        """Yield the log and its archive, or None for the archive if no remote is configured."""
        from offload.archive import attach
        from offload.errors import NoRemote

        with self.log(read_only=read_only) as log:
            try:
                archive = attach(log, self.remote, settings=self.settings())
            except NoRemote:
                yield log, None
                return
            with self.one_command(), archive:
                yield log, archive


def _token_in(file: Path) -> str:
    """Return the token in a file, without the line end. Raises `Missing`, `InvalidArgument`."""
    from offload.errors import no_such_file
    from seglog.client.address import token_in

    try:
        return token_in(file)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise no_such_file(file) from None
