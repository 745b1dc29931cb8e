"""The check of every frame of every WAL file, with the verdicts of recovery.

After a damage, the check continues at the next certain place. That is the manifest's place, or a sync mark. Frames
before the manifest's place are in segments, and nothing reads them again. Damage there is a note.
"""

from __future__ import annotations

from pathlib import Path

from seglog.errors import FileCorrupt, InvalidFrame
from seglog.files.file_system import OpenFile, ReadOnlyFiles
from seglog.format.batch_frame import UNIT_TYPES
from seglog.values.findings import Checked, Findings
from seglog.values.layout import Layout, WalFolder, number_in
from seglog.wal.manifest import LogManifest, WalPosition
from seglog.wal.scan import OpenBatch, check_begin, check_known, check_not_cut, open_batch_after, scan
from seglog.wal.wal import durable_after, foreign_mark, is_blank, read_current


def check_wal(files: ReadOnlyFiles, layout: Layout, manifest: LogManifest | None, findings: Findings) -> None:
    """Check the WAL of all shards.

    A torn tail becomes a note, and `files` hides it. So a recovery that is tried next over `files` finds it cut.
    Without a manifest, the folders on the disk tell how many shards there are.
    """
    names = [name for name in files.list_dir(layout.wal) if layout.is_wal_shard(name)]
    shards = max(len(names), 1) if manifest is None else len(manifest.wal)
    folders = layout.wal_folders(shards)
    for name in names:
        if layout.wal / name not in {folder.path for folder in folders}:
            findings.notes.append(f"{layout.wal / name}: of another number of shards; the next opening removes it")
    for shard, folder in enumerate(folders):
        with findings.reading(folder.path):
            begin = None if manifest is None else manifest.wal[shard]
            _check_folder(files, folder, begin, 0 if manifest is None else manifest.mark_secret, findings)


def _check_folder(
    files: ReadOnlyFiles, folder: WalFolder, begin: WalPosition | None, secret: int, findings: Findings
) -> None:
    numbers = [number for name in files.list_dir(folder.path) if (number := number_in("wal", name)) is not None]
    active = _active(files, folder, findings)
    if active is not None and active not in numbers:
        findings.damage(folder.current, 0, f"it names {folder.wal_file(active).name}, which is not there")
    for number in numbers:
        path = folder.wal_file(number)
        if begin is not None and number < begin.file:
            findings.notes.append(f"{path}: all in it is in segments; recovery removes it")
            continue
        with findings.reading(path):
            file = OpenFile(files, path)
            if active is not None and number > active:
                _check_blank(file, folder.current, findings)
                continue
            sure = begin.offset if begin is not None and number == begin.file else 0
            frames = _check_file(file, number, sure, secret, is_active=number == active, files=files, findings=findings)
            findings.checked.append(Checked("wal", path, frames, file.size()))


def _active(files: ReadOnlyFiles, folder: WalFolder, findings: Findings) -> int | None:
    number: int | None = None
    with findings.reading(folder.current):
        name = read_current(files, folder)
        number = number_in("wal", name)
        if number is None:
            raise FileCorrupt(folder.current, 0, f"{name!r} is not the name of a WAL file")
    return number


def _check_blank(file: OpenFile, current: Path, findings: Findings) -> None:
    if is_blank(file, 0, file.size()):
        findings.notes.append(f"{file.path}: never used; recovery removes it")
    else:
        findings.damage(file.path, 0, f"it holds data, but {current} names an older file")


def _check_file(
    file: OpenFile, number: int, sure: int, secret: int, *, is_active: bool, files: ReadOnlyFiles, findings: Findings
) -> int:
    """Check one file, and return its number of sound frames. A frame begins at `sure` for certain."""
    size = file.size()
    frames, start = 0, 0
    check_begin(file, sure, size)
    while True:
        error: InvalidFrame | None = None
        batch: OpenBatch | None = None
        try:
            for stretch in scan(file, start, size):
                for offset, header, position in stretch:
                    frames += 1
                    if batch is not None or header.type in UNIT_TYPES:
                        batch = open_batch_after(batch, offset, header, stretch.buffer, position)
        except InvalidFrame as invalid:
            error = invalid
        if error is None:
            return frames
        check_known(file, error, size)
        if error.offset < sure:
            # The frame may never have been durable: a checkpoint syncs segments, and not the WAL that they replace.
            findings.notes.append(
                f"{file.path}: no frame at offset {error.offset}, where segments have all: {error.reason}"
            )
            start = sure
            continue
        mark = durable_after(file, number, error.offset, size, secret)
        if mark is None:
            _check_end(file, number, error, batch, secret, is_active=is_active, files=files, findings=findings)
            return frames
        findings.damage(file.path, error.offset, f"{error.reason}; the bytes up to {mark} were durable")
        start = mark


def _check_end(
    file: OpenFile,
    number: int,
    error: InvalidFrame,
    batch: OpenBatch | None,
    secret: int,
    *,
    is_active: bool,
    files: ReadOnlyFiles,
    findings: Findings,
) -> None:
    """Judge invalid bytes that no sync mark follows. `batch` is the batch that is open before them."""
    if not is_active:
        findings.damage(file.path, error.offset, error.reason)
    elif foreign_mark(file, number, error.offset, file.size(), secret) is not None:
        findings.damage(file.path, error.offset, f"{error.reason}; the bytes are those of another file")
    elif batch is not None or not is_blank(file, error.offset, file.size()):
        check_not_cut(file, error, file.size())
        begin = error.offset
        if batch is None:
            files.hide_behind(file.path, begin)
        else:
            # Recovery judges the frames of the batch, and then cuts them itself.
            batch.check_not_cut(file, error.offset, file.size())
            begin = batch.begin
        findings.notes.append(f"{file.path}: a torn write begins at offset {begin}; recovery cuts it: {error.reason}")
