"""Test `follow`, `init --from`, and the unknown tail that `recover` prints, as a user types them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.terminals import Shown, on_terminal, without_styles
from tests.worlds.command import Run

__all__ = ["on_terminal"]


@pytest.fixture
def remote(run: Run, tmp_path: Path) -> str:
    """A remote with the topic `t` of 2 records and its branch `t@half`."""
    remote = (tmp_path / "remote").as_uri()
    run("init", "--remote", remote)
    _ship(run, b"a\nb\n")
    assert run("branch", "create", "t", "half", "--at", "seq:1").code == 0
    return remote


def _ship(run: Run, lines: bytes) -> None:
    run("append", "t", stdin=lines)
    run("seal", "t")
    assert run("offload", "t").code == 0


def _let_sleep(patch: pytest.MonkeyPatch, sleep: Callable[[float], None]) -> None:
    """Let `follow` sleep like this, and no other thread."""
    patch.setattr("offload.operations.standby.time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))


def _stop_after(monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
    """Let the wait after so many looks be interrupted."""
    waits: Iterator[int] = iter(range(looks - 1))

    def wait(_seconds: float) -> None:
        if next(waits, None) is None:
            raise KeyboardInterrupt

    _let_sleep(monkeypatch, wait)


def test_a_look_makes_the_directory_and_the_next_tells_the_lag(run: Run, remote: str) -> None:
    first = run("follow", remote, "standby", "--once")
    assert (first.code, first.err) == (0, "")
    assert first.undated == (
        "t: head 2 (lsn 1), 2 records, the last one seq 2 of TIME\n"
        "  the tail after seq 2, time TIME, was not shipped: unknown\n"
        "t@half: head 1 (lsn 0), 1 record, the last one seq 1 of TIME\n"
        "  the tail after seq 1, time TIME, was not shipped: unknown\n"
        "looked at 2 topics\n"
    )
    _ship(run, b"c\n")
    t, half, _ = run("follow", remote, "standby", "--once").text.splitlines()
    assert re.fullmatch(r"t: took in 1 commit, now at seq 3 \(lsn 2\); was 1 record and \d+\.\d s behind", t)
    assert half == "t@half: nothing new, at seq 1 (lsn 0), no lag"
    assert run("read", "t", directory="standby").out == b"a\nb\nc\n"
    [topic, *_] = map(json.loads, run("--json", "follow", remote, "standby", "--once").out.splitlines())
    assert (topic["kind"], topic["lag_records"], topic["lag_s"]) == ("topic_followed", 0, 0.0)
    assert run("append", "t", stdin=b"d\n", directory="standby").text.endswith("seq 4 to 4\n")
    assert "t: written here, at seq 4 (lsn 3), and not followed" in run("follow", remote, "standby", "--once").text


def test_it_works_over_s3(run: Run, s3_remote: str) -> None:
    run("init", "--remote", s3_remote)
    _ship(run, b"a\nb\n")
    assert run("init", "--from", s3_remote, directory="standby").code == 0
    _ship(run, b"c\n")
    assert "was 1 record and " in run("follow", s3_remote, "standby", "--once").text
    nowhere = run("follow", "s3://no-such-bucket/acme", "other", "--once")
    assert (nowhere.code, "no-such-bucket does not exist" in nowhere.err) == (3, True)


def test_an_interrupt_ends_it_with_a_way_to_go_on(run: Run, remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _stop_after(monkeypatch, looks=2)
    done = run("follow", remote, "standby")
    assert done.code == 130
    assert done.text.count("was not shipped: unknown") == 2
    assert "nothing new" not in done.text
    assert done.err == (
        f"stopped: `seglog follow {remote} standby` continues, "
        "`seglog -C standby takeover TOPIC` makes this directory the writer\n"
    )


def test_a_terminal_gets_a_table(run: Run, remote: str, on_terminal: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    _stop_after(monkeypatch, looks=1)
    shown = without_styles(on_terminal("follow", remote, "standby", code=130))
    for part in ("newest record", "t@half", "replica", "follows"):
        assert part in shown


def test_a_failure_is_shown(run: Run, remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("follow", remote, "standby", "--once").code == 0
    (tmp_path / "remote").rename(tmp_path / "away")
    (tmp_path / "remote").write_bytes(b"")
    _stop_after(monkeypatch, looks=2)
    done = run("follow", remote, "standby")
    assert done.code == 130
    first, second, _ = done.err.splitlines()
    assert "failed: " in first
    assert "failed 2 times in a row: " in second
    assert re.search(r"; next try in \d+\.\d s$", second)
    once = run("follow", remote, "standby", "--once")
    assert once.code != 0
    assert "next try" not in once.err
    told = run("--json", "follow", remote, "standby", "--once")
    assert json.loads(told.out.splitlines()[0])["kind"] == "look_failed"
    with monkeypatch.context() as patch:
        waits = iter([None])

        def mend(_seconds: float) -> None:
            if next(waits, 0) == 0:
                raise KeyboardInterrupt
            (tmp_path / "remote").unlink()
            (tmp_path / "away").rename(tmp_path / "remote")

        _let_sleep(patch, mend)
        back = run("follow", remote, "standby")
    assert back.text == "t: nothing new, at seq 2 (lsn 1), no lag\n"  # it works again


def test_recover_tells_where_the_unknown_begins(run: Run, remote: str) -> None:
    assert "  the tail after seq 2, time TIME, was not shipped: unknown\n" in run("recover", remote, "new").undated
    [main, _] = map(json.loads, run("--json", "recover", remote, "other").out.splitlines())
    assert (main["tail"], main["tail_after_seq"], main["tail_after_time"]) == ("unknown", 2, main["last_time"])


def test_an_interrupted_recovery_says_how_to_go_on(run: Run, remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("offload.recovery.complete", _interrupt)
        stopped = run("recover", remote, "new")
    assert (stopped.code, stopped.err) == (130, "interrupted: repeat the command, and it continues\n")
    assert run("recover", remote, "new").text == stopped.text


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_directory_is_set_up_from_a_remote(run: Run, remote: str, tmp_path: Path) -> None:
    made = run("init", "--from", remote, directory="new")
    assert made.text == f"made {tmp_path}/new, which follows 1 topic and 1 branch of {remote}\n"
    assert run("read", "t", directory="new").out == b"a\nb\n"
    assert run("append", "t", stdin=b"c\n", directory="new").text.endswith("seq 3 to 3\n")
    [told] = map(json.loads, run("--json", "init", "--from", remote, directory="other").out.splitlines())
    assert (told["remote"], told["topics"]) == (remote, ["t", "t@half"])


def test_a_set_up_from_nothing_or_over_something_is_refused(run: Run, remote: str, tmp_path: Path) -> None:
    empty = run("init", "--from", (tmp_path / "nothing").as_uri(), directory="new")
    assert (empty.code, "there is no topic at all in" in empty.err) == (3, True)
    assert not (tmp_path / "new").exists()
    full = run("init", "--from", remote)  # over the directory of the writer
    assert (full.code, "is not empty; nothing was changed" in full.err) == (4, True)
    both = run("--remote", remote, "init", "--from", remote, directory="new")
    assert (both.code, "leave out --remote" in both.err) == (2, True)
    assert run("init", "--from", "gs://bucket", directory="new").code == 2
    within = run("init", "--from", remote, directory="remote/new")
    assert (within.code, (tmp_path / "remote" / "new").exists()) == (2, False)
