"""Copy a state of a topic to files: `seglog export`. A run that was stopped continues behind its last whole file.

    1  The state is looked up, and pinned in the remote. A wrong topic or target leaves nothing behind.
    2  The directory and its manifest are made. The first line names the state.
    3  Each file is written, synced and renamed. Then the manifest lists it (PARTS-1).
    4  The last line says that the export is whole. The pin is released.

After a kill between 2 and 4, a second run reads the state that the first line names (COPY-2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from offload.errors import ExportOutdated, Misuse, damage_found
from offload.operations.export_directory import (
    ExportDirectory,
    Exported,
    OpenPart,
    PartExported,
    another_run,
    look,
    opened,
    sha256_of,
)
from offload.operations.export_forms import Form, Sink, check_installed, writer_of
from offload.operations.export_state import ExportBegun, Source, other_export
from offload.operations.result_json import PartlyDone, problem
from seglog import Record
from seglog.base.dataclasses import dataclass
from seglog.files.file_system import Files
from seglog.interrupts import closing_after

_Progress = Callable[[int, int], None]
"""Takes the last seq that an export has passed, and the last seq of all."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The wishes of a caller of `export`. `name` is TOPIC or TOPIC@BRANCH."""

    name: str
    at: str | None
    form: Form
    part_bytes: int


@dataclass(frozen=True, slots=True)
class WrongPart:
    """A file that is not as the manifest says."""

    file: str
    problem: str


@dataclass(frozen=True, slots=True)
class ExportVerified:
    """The files of an export, as its manifest lists them. Unless it `is_whole`, a run of `export` ends it."""

    topic: str
    directory: str
    is_whole: bool
    parts: int
    records: int
    bytes: int


def export(
    source: Source, files: Files, directory: Path, request: ExportRequest, passed: _Progress
) -> Iterator[ExportBegun | PartExported | Exported]:
    """Yield the state, each file once it is whole, and the total.

    Raises `NotInstalled`, `DirectoryInUse`, `ExportOutdated`, `Conflict` for a directory of other files or of another
    export, `Corrupt`, what the look-up of the state raises, and `PartlyDone` for another error after the start.
    """
    check_installed(request.form)
    with _begun(source, files, directory, request) as folder:
        assert folder.begun is not None  # noqa: S101 - the context is for an export that has begun
        yield folder.begun
        try:
            if folder.exported is None:
                yield from _copied(source, folder, folder.begun, request, passed)
                source.check(folder.begun)
                folder.add(_total(folder.begun, directory, folder.parts))
            source.release(folder.begun)
        except ExportOutdated:
            raise
        except Exception as error:
            raise _partly(error, len(folder.parts)) from error
        assert folder.exported is not None  # noqa: S101 - its last line is there
        yield folder.exported


def export_to(source: Source, sink: Sink, request: ExportRequest, passed: _Progress) -> None:
    """Write all records to a sink, such as standard output. Only lines fit there. Raises `Misuse`."""
    if request.form is Form.PARQUET:
        raise Misuse("--format parquet needs a directory, because a file of it has an end")
    begun = source.begin(request.at, request.form, request.part_bytes)
    try:
        writer = writer_of(request.form, sink, [])
        for records in source.records(begun, begun.first_seq):
            while records:
                count, _ = writer.fill(records, request.part_bytes)
                passed(records[count - 1].seq, begun.last_seq)
                records = records[count:]
        source.check(begun)
    finally:
        source.release(begun)


def verify(files: Files, directory: Path, name: str) -> Iterator[WrongPart | ExportVerified]:
    """Read the files of an export again, and compare them with the manifest. Raises `Corrupt` at the end."""
    if not look(files, directory):
        raise Misuse(f"{directory} has no export")
    with opened(files, directory, writes=False) as folder:
        begun = folder.begun
        if begun is None or begun.name != name:
            raise other_export("no topic yet" if begun is None else begun.name, name)
        wrong = 0
        for part in folder.parts:
            digest = sha256_of(files, directory / part.file)
            if digest != (part.bytes, part.sha256):
                wrong += 1
                yield WrongPart(part.file, "is missing" if digest is None else "has other bytes than were written")
        if wrong:
            raise damage_found(wrong, str(directory), hint="export to another directory")
        total = _total(begun, directory, folder.parts)
        yield ExportVerified(name, str(directory), folder.exported is not None, total.parts, total.records, total.bytes)


@contextmanager
def _begun(source: Source, files: Files, directory: Path, request: ExportRequest) -> Iterator[ExportDirectory]:
    """Yield the directory with an export that has begun: an earlier run's, or a new one."""
    if look(files, directory):
        with opened(files, directory) as folder:
            if folder.begun is not None:
                _continue(source, folder, folder.begun, request)
                yield folder
                return
    begun = source.begin(request.at, request.form, request.part_bytes)
    is_begun = False
    try:
        with opened(files, directory, makes=True) as folder:
            if folder.begun is not None:
                raise another_run(directory)
            folder.add(begun)
            is_begun = True
            yield folder
    finally:
        if not is_begun:
            source.release(begun)


def _continue(source: Source, folder: ExportDirectory, begun: ExportBegun, request: ExportRequest) -> None:
    """Check that the export of an earlier run is the wanted one, and pin its state again."""
    for earlier, now in ((begun.name, request.name), (f"--format {begun.format}", f"--format {request.form}")):
        if earlier != now:
            raise other_export(earlier, now)
    if begun.part_bytes != request.part_bytes:
        raise other_export(f"--part-bytes {begun.part_bytes}", f"--part-bytes {request.part_bytes}")
    folder.check_sizes()
    source.check_target(begun, request.at)
    if folder.exported is None:
        folder.remove_remains()
        again = source.resume(begun)
        if again != begun:
            folder.add(again)


def _copied(
    source: Source, folder: ExportDirectory, begun: ExportBegun, request: ExportRequest, passed: _Progress
) -> Iterator[PartExported]:
    """Write the files that are not there yet, and yield each one."""
    first_seq = folder.parts[-1].last_seq + 1 if folder.parts else begun.first_seq
    lsns = source.lsns(begun) if request.form is Form.PARQUET else []
    with _Parts(folder, request, lsns) as parts:
        for records in source.records(begun, first_seq):
            yield from parts.take(records)
            passed(records[-1].seq, begun.last_seq)
        yield from parts.end()


class _Parts:
    """Puts records into files, one after the other."""

    def __init__(self, folder: ExportDirectory, request: ExportRequest, lsns: list[tuple[int, int]]) -> None:
        self._folder = folder
        self._request = request
        self._lsns = lsns
        self._file: OpenPart | None = None

    def __enter__(self) -> _Parts:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._file is not None:
            with closing_after(error):
                self._file.drop()

    def take(self, records: tuple[Record, ...]) -> Iterator[PartExported]:
        """Write records, and yield each file that they fill."""
        while records:
            if self._file is None:
                self._file = self._folder.open_part(self._request.form)
                self._writer = writer_of(self._request.form, self._file, self._lsns)
                self._room_bytes, self._first_seq, self._records = self._request.part_bytes, records[0].seq, 0
            count, size_bytes = self._writer.fill(records, self._room_bytes)
            self._room_bytes -= size_bytes
            self._records += count
            self._last_seq = records[count - 1].seq
            records = records[count:]
            if self._room_bytes <= 0:
                yield from self.end()

    def end(self) -> Iterator[PartExported]:
        """Yield the file that has records, once it is whole and in the manifest."""
        if self._file is not None:
            self._writer.close()
            part = self._file.keep(self._first_seq, self._last_seq, self._records)
            self._file = None
            self._folder.add(part)
            yield part


def _total(begun: ExportBegun, directory: Path, parts: list[PartExported]) -> Exported:
    return Exported(
        topic=begun.name,
        directory=str(directory),
        lsn=begun.lsn,
        first_seq=parts[0].first_seq if parts else None,
        last_seq=parts[-1].last_seq if parts else None,
        parts=len(parts),
        records=sum(part.records for part in parts),
        bytes=sum(part.bytes for part in parts),
    )


def _partly(error: Exception, parts: int) -> PartlyDone:
    """Return the error of an export of which so many files are whole."""
    report = problem(error)
    head = f"{report['hint']}; then " if "hint" in report else ""
    message = f"{report['message']}; {'1 file is whole' if parts == 1 else f'{parts} files are whole'}"
    return PartlyDone(message, report["exit_code"], hint=f"{head}repeat the command to continue")
