"""The log reports every damage to a file of a data directory with its place, or the damage changes nothing for readers.

    directory   what a kill leaves after a life with two WAL files, sealed and active segments, deletes and a manifest
    damage      each bit flipped, the file cut at each byte, a page zeroed, two frames or entries swapped, one doubled,
                a piece of another file put in, the file replaced by that of another topic or an older state, the file
                missing
    detected    `FileCorrupt` or `FormatUnsupported` names the file, or a file beside it that must fit it
    harmless    every record is exact, none is missing, no deleted record is back
    as torn     damage in the active WAL file with no sync mark behind it. Recovery cannot tell it from a torn write
                and cuts the file there. Every record before the cut is exact (decision 0008)
    silent      anything else; the test fails if there is any

Damage that only a reader meets costs no record outside that segment.

Not tested: damage in two places, and which of two files of one directory is damaged, since each must fit the other.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import pytest

import seglog
from seglog import FileCorrupt, FormatUnsupported, InvalidSetting, Log, LogSettings, TopicConfig
from seglog.engine.work_thread import InCaller
from seglog.files.directory import default_toml, load_settings
from seglog.format.frame import FrameType, read_header
from seglog.format.index import ENTRY
from tests.faults.disk import Image, SimulatedDisk
from tests.seams.log import engine_of, known_mark_secret
from tests.work import tell
from tests.worlds.clock import HandClock

DIRECTORY = Path("/log")
SETTINGS = LogSettings(segment_max_events=6, wal_file_bytes=4096)
PAGE_BYTES = 512
Record = tuple[int, bytes, str | None]


@dataclass
class Matrix:
    """`image` is the sound directory, `older` is an earlier state of it, `records` are the records of each topic."""

    image: Image
    older: Image
    records: dict[str, list[Record]]
    settings: LogSettings
    verdicts: Counter[str] = field(default_factory=Counter)
    silent: list[str] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        return [path for path, body in self.image.tree.items() if body is not None]

    @property
    def active_wals(self) -> set[str]:
        currents = [path for path in self.paths if path.endswith("/CURRENT")]
        return {str(Path(path).parent / (self.image.tree[path] or b"").decode().strip()) for path in currents}

    def judge(self, path: str, body: bytes | None, what: str) -> None:
        whole = self.image.tree[path]
        assert whole is not None
        if body == whole:
            return
        others = {name: old for name, old in self.image.tree.items() if name != path}
        image = Image(others if body is None else others | {path: body})
        try:
            with seglog.open(
                DIRECTORY, files=SimulatedDisk(image), settings=self.settings, clock=HandClock(1_000)
            ) as log:
                may_be_torn = path in self.active_wals and not _has_mark_behind_damage(whole, body or b"")
                verdict = self._compare(log, path, may_be_torn=may_be_torn)
        except (FileCorrupt, FormatUnsupported) as error:
            verdict = "detected" if _is_about(error, path) else f"it says {error}"
        if verdict not in ("detected", "harmless", "as torn"):
            self.silent.append(f"{path}, {what}: {verdict}")
            verdict = "silent"
        self.verdicts[verdict] += 1

    def _compare(self, log: Log, path: str, *, may_be_torn: bool) -> str:
        verdict = "harmless"
        for name, records in self.records.items():
            found, errors = _read_all(log, name)
            for error in errors:
                if not _is_about(error, path):
                    return f"a reader is told {error}"
            if found == records:
                continue
            if errors and not [record for record in found if record not in records]:
                missing = [seq for seq, *_ in records if seq not in {seq for seq, *_ in found}]
                if any(
                    log.topic(name).inner.segments()[_segment(log, name, seq)].first_seq != _number(path)
                    for seq in missing
                ):
                    return f"{missing} of {name} are lost with it"
                verdict = "detected"
            elif may_be_torn and found == records[: len(found)]:
                verdict = "as torn"
            else:
                return f"{name} has {[seq for seq, *_ in found]}"
        return verdict

    def figures(self) -> str:
        counts = ", ".join(f"{self.verdicts[kind]} {kind}" for kind in ("detected", "harmless", "as torn", "silent"))
        return f"{self.verdicts.total()} kinds of damage: {counts}"


def _segment(log: Log, name: str, seq: int) -> int:
    return [segment.last_seq >= seq for segment in log.topic(name).inner.segments()].index(True)


def _number(path: str) -> int:
    return int(Path(path).stem.split("-")[1]) if "seg-" in path else -1


def _read_all(log: Log, name: str) -> tuple[list[Record], list[FileCorrupt]]:
    """Return every record that can be read, and the errors. After an error the read continues with the next seq."""
    found: list[Record] = []
    errors: list[FileCorrupt] = []
    seq = 1
    while log.has_topic(name) and seq <= log.topic(name).head_seq:
        try:
            for record in log.topic(name).read(seq):
                found.append((record.seq, record.value, record.tag))
                seq = record.seq + 1
            break
        except FileCorrupt as error:
            errors.append(error)
            seq += 1
    return found, errors


def _is_about(error: FileCorrupt | FormatUnsupported, path: str) -> bool:
    """Return whether the error names `path` or a file that must fit it.

    WAL files must fit CURRENT, a .data file must fit its .idx file, and every file must fit the manifest. If the newest
    manifest is missing, the log opens the one before it. Then a file that is ahead of that manifest does not fit. The
    error names that file and says that it does not fit the manifest.
    """
    named = str(error.path)
    wal = str(DIRECTORY / "wal")
    is_beside = Path(named).parent == Path(path).parent or (named.startswith(wal) and path.startswith(wal))
    return is_beside or named.startswith(path) or ("/meta/" in path and "the manifest" in str(error))


def _has_mark_behind_damage(whole: bytes, body: bytes) -> bool:
    first = next((at for at, (old, new) in enumerate(zip(whole, body, strict=False)) if old != new), len(body))
    return any(
        offset > first and body[offset : offset + size] == whole[offset : offset + size]
        for offset, size, kind in _frames(whole)
        if kind == FrameType.SYNC_MARK
    )


def _frames(body: bytes) -> list[tuple[int, int, int]]:
    """Return the offset, size and type of each frame."""
    frames, offset = [], 0
    while offset < len(body) and any(body[offset : offset + 4]):
        header = read_header(body, offset)
        frames.append((offset, header.frame_bytes, header.type))
        offset += header.frame_bytes
    return frames


def _make(shards: int) -> Matrix:
    disk = SimulatedDisk()
    settings = replace(SETTINGS, wal_shards=shards)
    log = seglog.open(DIRECTORY, files=disk, settings=settings, clock=HandClock(1_000), upkeep=InCaller)
    log.create_topic("b", TopicConfig(keep_history=True))

    def append(rounds: range) -> None:
        for number in rounds:
            log.topic("a").append([b"a %d %d" % (number, i) for i in range(2)], tag="x" if number % 2 else None)
            log.topic("b").append([b"b %d" % number], tag="t")

    append(range(5))
    log.topic("a").delete(before=2)
    log.checkpoint()
    older = disk.after_kill()
    append(range(5, 9))
    log.topic("a").delete(tag="x", before=9)
    log.checkpoint()
    same_length = [path for path, body in older.tree.items() if path.endswith(".idx") and _is_stale(disk, path, body)]
    assert same_length
    # The held lock keeps checkpoints out, so the rotation leaves two WAL files.
    with engine_of(log).checkpoint_lock:
        log.topic("b").delete(before=3, tag="t")
        append(range(9, 9 + 15 * shards))
    topics = {name: _read_all(log, name)[0] for name in log.topics()}
    image = disk.after_kill()
    assert len([path for path in image.tree if path.endswith(".log")]) > shards
    return Matrix(image, older, topics, settings)


def _is_stale(disk: SimulatedDisk, path: str, body: bytes | None) -> bool:
    now = disk.after_kill().tree[path]
    return now is not None and body is not None and now != body and len(now) == len(body)


def _damage(matrix: Matrix, path: str, chance: random.Random, most: int) -> Iterator[tuple[bytes | None, str]]:
    body = matrix.image.tree[path]
    assert body is not None
    used = len(body.rstrip(b"\0")) + 16 if path.endswith(".log") else len(body)
    for bit in _some(range(min(used, len(body)) * 8), chance, most):
        yield body[: bit // 8] + bytes([body[bit // 8] ^ 1 << bit % 8]) + body[bit // 8 + 1 :], f"bit {bit}"
    for length in _some(range(min(used, len(body))), chance, most):
        yield body[:length], f"cut at {length}"
    for start in range(0, len(body), PAGE_BYTES):
        size = min(PAGE_BYTES, len(body) - start)
        yield body[:start] + bytes(size) + body[start + size :], f"zeros from {start}"
    yield from _moved(body, _parts(path, body), chance, most)
    for other in _some(matrix.paths, chance, 2 * most):
        piece = matrix.image.tree[other] or b""
        start = chance.randrange(0, max(1, len(body)))
        yield body[:start] + piece[start : start + 64] + body[start + 64 :], f"a piece of {other} at {start}"
        if Path(other).suffix == Path(path).suffix:
            yield piece, f"{other} in its place"
    stale = matrix.older.tree.get(path)
    if stale is not None:
        yield stale, "as it was before"
    yield None, "gone"


def _moved(body: bytes, parts: list[tuple[int, int]], chance: random.Random, most: int) -> Iterator[tuple[bytes, str]]:
    pairs = [(one, two) for one in parts for two in parts if one < two]
    for (at, size), (other_at, other_size) in _some(pairs, chance, most):
        one, two = body[at : at + size], body[other_at : other_at + other_size]
        yield (
            body[:at] + two + body[at + size : other_at] + one + body[other_at + other_size :],
            f"{at} and {other_at} swapped",
        )
    for at, size in _some(parts, chance, most):
        yield body[: at + size] + body[at:], f"{at} doubled"


def _parts(path: str, body: bytes) -> list[tuple[int, int]]:
    if path.endswith((".log", ".data")):
        return [(offset, size) for offset, size, _ in _frames(body)]
    return [(at, ENTRY.size) for at in range(0, len(body), ENTRY.size)] if path.endswith(".idx") else []


def _some(what: range | list, chance: random.Random, most: int) -> list:  # type: ignore[type-arg]
    return list(what) if len(what) <= most else chance.sample(what, most)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.CRITICAL, "seglog")
    with known_mark_secret(0x5EC4E7):  # it is in the bytes to damage
        yield


def _prove(most: int, seed: int, shards: int = 1, part: int = 0, of: int = 1) -> None:
    matrix = _make(shards)
    chance = random.Random(seed)
    damages = ((path, body, what) for path in matrix.paths for body, what in _damage(matrix, path, chance, most))
    for path, body, what in islice(damages, part, None, of):
        matrix.judge(path, body, what)
    tell(f"{len(matrix.paths)} files, {matrix.figures()}")
    assert not matrix.silent, "\n".join(matrix.silent[:20])


def test_damage_is_found_or_harmless() -> None:
    _prove(most=2, seed=1)


@pytest.mark.long
def test_damage_is_found_or_harmless_with_shards() -> None:
    _prove(most=1, seed=4, shards=2)


@pytest.mark.soak(part=2)
@pytest.mark.parametrize("part", range(8))
def test_every_bit_and_every_length(part: int) -> None:
    _prove(most=4000, seed=2, part=part, of=8)


def test_damaged_settings_are_refused_or_are_settings(tmp_path: Path) -> None:
    body = default_toml().encode()
    path = tmp_path / "seglog.toml"
    outcomes: Counter[str] = Counter()
    for bit in random.Random(3).sample(range(len(body) * 8), 800):
        path.write_bytes(body[: bit // 8] + bytes([body[bit // 8] ^ 1 << bit % 8]) + body[bit // 8 + 1 :])
        try:
            outcomes["read" if isinstance(load_settings(path), LogSettings) else "silent"] += 1
        except InvalidSetting:
            outcomes["refused"] += 1
    tell(f"{outcomes.total()} bits of seglog.toml: {dict(outcomes)}")
    assert set(outcomes) <= {"read", "refused"}
