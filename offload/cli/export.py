"""The command `seglog export`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from offload.cli.execution import Bar, results_of
from offload.cli.session import Session
from offload.cli.stdio import discard_output
from offload.cli.stopped import told
from offload.errors import Misuse
from offload.operations import export as use
from offload.operations.command import COMMANDS, About, Command, TopicName
from offload.operations.export import ExportRequest, ExportVerified, WrongPart
from offload.operations.export_directory import Exported, PartExported
from offload.operations.export_forms import Form
from offload.operations.export_state import ExportBegun, Source
from offload.operations.printing import counted, format_bytes

_PART_BYTES = 128 * 1024 * 1024


def export(
    session: Session,
    topic: TopicName,
    directory: Annotated[Path, About("The directory of the files, or - for standard output.", metavar="DIR")],
    at: Annotated[
        str | None,
        About("As it was then: seq:N, lsn:N, head, head~N, tag:NAME, or a time. Now without it.", names="target"),
    ] = None,
    form: Annotated[
        Form, About("jsonl: with seqs, times and tags. raw: the bytes of `read`. parquet: needs pyarrow.", "--format")
    ] = Form.JSONL,
    part_bytes: Annotated[int, About("A file ends with the record that brings it to so many bytes.", least=1)] = (
        _PART_BYTES
    ),
    verify: Annotated[bool, About("Write nothing: read the files again, and compare them with the manifest.")] = False,
) -> None:
    """Copy a topic, or a past state of it, to files. A manifest has their seqs and checksums.

    After an error or a kill, repeat the command: it continues behind its last whole file, with the same state. A state
    in the remote is pinned meanwhile, so GC keeps it, and no delete or eviction changes it. `seglog append TOPIC FILE
    --format jsonl` takes a file of jsonl again.

    Examples: seglog export orders backup --at tag:audit; seglog export orders - --format raw | gzip > orders.gz
    """
    from seglog import OsFiles

    if str(directory) == "-":
        if session.as_json or verify:
            raise Misuse("with -, the output is the records: leave out --json and --verify")
        _print(session, ExportRequest(topic, at, Form(form), part_bytes))
        return
    if verify:
        if at is not None:
            raise Misuse("--verify takes no --at")
        for verdict in use.verify(OsFiles(), directory, topic):
            session.output.show(verdict, _verified_text(verdict))
        return
    with closing(_Seen(session, topic)) as progress, told(progress.text):
        request = ExportRequest(topic, at, Form(form), part_bytes)
        for result in use.export(_source(session, topic), OsFiles(), directory, request, progress.passed):
            if isinstance(result, Exported):
                progress.close()
            progress.count += isinstance(result, PartExported)
            session.output.show(result, _text(result))


class _Seen:
    """The progress of one run: the files that it ended, and a bar."""

    def __init__(self, session: Session, topic: str) -> None:
        self.count = 0
        self._is_shown = session.shows_progress
        self._title = f"export {topic}"
        self._bar: Bar | None = None
        self._first_seq: int | None = None

    def passed(self, seq: int, last_seq: int) -> None:
        if not self._is_shown:
            return
        if self._bar is None or self._first_seq is None:
            self._first_seq = seq
            self._bar = Bar(self._title, last_seq - seq, unit="seqs")
        self._bar.tell(seq - self._first_seq)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def text(self) -> str:
        """Say how far the run came, after a signal."""
        return f"interrupted: this run ended {counted(self.count, 'file')}; repeat the command to continue"


def _print(session: Session, request: ExportRequest) -> None:
    with closing(_Seen(session, request.name)) as progress:
        try:
            use.export_to(_source(session, request.name), sys.stdout.buffer, request, progress.passed)
            sys.stdout.flush()
        except BrokenPipeError:
            discard_output()


def _source(session: Session, topic: str) -> Source:
    return Source(partial(_call, session), topic, session.output.note)


def _call(session: Session, path: str, values: Mapping[str, Any]) -> Iterator[Any]:
    return results_of(session, COMMANDS[path], COMMANDS[path].arguments(values))


def _text(result: ExportBegun | PartExported | Exported) -> str:
    if not isinstance(result, Exported):
        return ""
    seqs = f", seq {result.first_seq} to {result.last_seq}," if result.records else ""
    state = "" if result.lsn is None else f" at lsn {result.lsn}"
    files = f"{counted(result.parts, 'file')}, {format_bytes(result.bytes)}"
    return f"exported {counted(result.records)} of {result.topic}{state}{seqs} to {result.directory}: {files}"


def _verified_text(verdict: WrongPart | ExportVerified) -> str:
    if isinstance(verdict, WrongPart):
        return f"{verdict.file} {verdict.problem}"
    unfinished = "" if verdict.is_whole else "; the export is not whole yet: run it again without --verify"
    return f"{counted(verdict.parts, 'file')} of {verdict.topic} in {verdict.directory} as written{unfinished}"


EXPORT = Command("export", export, section="time travel")
