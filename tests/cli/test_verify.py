from __future__ import annotations

import json
from pathlib import Path

import pytest

from offload.operations.verify import verify
from seglog import LogSettings
from tests.worlds.command import Run


@pytest.fixture
def started(run: Run) -> Run:
    assert run("init").code == 0
    assert run("append", "t", stdin=b"one\ntwo\n").code == 0
    return run


def test_a_sound_directory_says_what_was_checked(started: Run) -> None:
    done = started("verify")
    assert (done.code, done.err) == (0, "")
    lines = done.text.splitlines()
    assert [line.split(":")[0] for line in lines] == ["snapshots", "WAL", "topic t", "sound"]
    assert "2 records in 1 file" in lines[2]


def test_damage_is_told_with_file_and_offset_and_exit_code_5(started: Run, tmp_path: Path) -> None:
    [data] = (tmp_path / "data" / "topics").rglob("*.data")
    body = bytearray(data.read_bytes())
    body[body.index(b"two")] ^= 1
    data.write_bytes(body)
    done = started("verify")
    assert done.code == 5
    [line] = [line for line in done.text.splitlines() if line.startswith("DAMAGED")]
    assert f"{data} at offset {len(body) // 2}: checksum mismatch" in line
    assert done.err.startswith("seglog: 1 damage in ")
    assert done.err.count("\n") == 1
    assert "sound" not in done.text
    assert data.read_bytes() == body


def test_json_has_an_object_a_line(started: Run, tmp_path: Path) -> None:
    done = started("--json", "verify")
    assert done.code == 0
    values = [json.loads(line) for line in done.text.splitlines()]
    assert {value["file_kind"] for value in values} == {"snapshot", "wal", "segment"}
    [idx] = (tmp_path / "data" / "topics").rglob("*.idx")
    idx.unlink()
    done = started("--json", "verify")
    assert done.code == 5
    values = [json.loads(line) for line in done.text.splitlines()]
    assert {
        "schema": 1,
        "kind": "damaged_file",
        "damaged": str(idx),
        "offset": 0,
        "reason": "the file is missing",
    } in values


def test_what_is_no_data_directory_is_not_found(run: Run) -> None:
    done = run("verify", directory="elsewhere")
    assert (done.code, done.out) == (3, b"")
    assert "elsewhere is not a seglog data directory" in done.err


def test_the_check_tells_the_bytes_that_it_has_read(run: Run, tmp_path: Path) -> None:
    run("init")
    run("append", "t", stdin=b"line\n" * 20_000)
    run("seal", "t")
    told: list[tuple[str, int | None, int, str]] = []
    list(verify(tmp_path / "data", LogSettings(), lambda *each: told.append(each)))
    done = [each[2] for each in told]
    assert done == sorted(done)
    assert len(done) > 5
    [(title, total, unit)] = {(title, total, unit) for title, total, _, unit in told}
    assert (title, unit, done[-1]) == ("verify", "bytes", total)
