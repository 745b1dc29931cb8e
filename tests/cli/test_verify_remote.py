"""Test `seglog verify --remote`: with a sound remote, with a damaged one, and without a data directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.worlds.command import Run


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    for value in (b"one\ntwo\n", b"three\n"):
        run("append", "orders", stdin=value)
        run("seal", "orders")
        assert run("offload", "orders").code == 0
    assert run("branch", "create", "orders", "fix", "--at", "lsn:1").code == 0
    return run


def test_what_is_whole_is_sound(started: Run) -> None:
    assert started("verify", "--remote").text.splitlines() == [
        "2 volumes, 2 commits, 2 segments, not read: that is --deep; 0 that no commit names",
        "sound",
    ]
    deep = json.loads(started("--json", "verify", "--remote", "--deep").out)
    assert (deep["segments"], deep["unreferenced_segments"], deep["read_bytes"] > 0) == (2, 0, True)


def test_a_changed_byte_is_told_by_its_key(started: Run, tmp_path: Path) -> None:
    [path, *_] = (each for each in (tmp_path / "remote").glob("5*/segments/*") if not each.suffix)
    body = path.read_bytes()
    path.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    assert started("verify", "--remote").code == 0
    done = started("verify", "--remote", "--deep")
    assert (done.code, "1 damage in file://" in done.err) == (5, True)
    assert f"DAMAGED {path.relative_to(tmp_path / 'remote')}: its content is not what its commit says" in done.text


def test_a_short_object_is_told_without_a_look_at_its_bytes(started: Run, tmp_path: Path) -> None:
    for path in sorted((tmp_path / "remote").glob("5*/segments/*"))[:2]:
        body = path.read_bytes()
        path.write_bytes(body[:-1])
        done = started("verify", "--remote")
        said = f"{path.relative_to(tmp_path / 'remote')}: it has {len(body) - 1} bytes, its commit says {len(body)}"
        assert (done.code, done.text.splitlines()[-1]) == (5, f"DAMAGED {said}")
        path.write_bytes(body)


def test_a_missing_object_is_told_without_a_data_directory(started: Run, tmp_path: Path) -> None:
    [path, *_] = sorted((tmp_path / "remote").glob("5*/segments/*.index"))
    path.unlink()
    done = started("-C", str(tmp_path / "nowhere"), "--remote", (tmp_path / "remote").as_uri(), "verify", "--remote")
    assert (done.code, "it is not there" in done.text) == (5, True)


def test_deep_is_for_the_remote(started: Run) -> None:
    assert started("verify", "--deep").code == 2
