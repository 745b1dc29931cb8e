"""Test `seglog tail`, without a daemon and through one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.daemons import served
from tests.worlds.command import Run


@pytest.fixture
def filled(run: Run, tmp_path: Path) -> Run:
    """A topic of 100 records, of which 60 are only in the remote, and of which 50 to 98 are deleted."""
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    for first, last in ((1, 60), (61, 100)):
        text = "".join(f"{number}\n" for number in range(first, last + 1))
        assert run("append", "t", stdin=text.encode()).code == 0
        if first == 1:
            assert run("seal", "t").code == 0
            assert run("offload", "t", "--drop-hot").code == 0
    assert run("delete", "t", "--from", "50", "--to", "98", "--yes").code == 0
    return run


def _lines(run: Run, *words: str, directory: str = "data") -> list[int]:
    done = run("tail", "t", *words, directory=directory)
    assert done.code == 0, done.err
    return list(map(int, done.out.split()))


def test_the_last_live_records_are_printed_wherever_they_are(filled: Run) -> None:
    assert _lines(filled) == [*range(42, 50), 99, 100]
    assert _lines(filled, "-n", "1") == [100]
    assert _lines(filled, "-n3") == [49, 99, 100]
    assert _lines(filled, "-n", "1000") == [*range(1, 50), 99, 100]
    assert [json.loads(line)["seq"] for line in filled("tail", "t", "-n2", "--json").text.splitlines()] == [99, 100]
    assert filled("tail", "t", "-n0").code == 2
    assert filled("tail", "nope").code == 3
    filled("topic", "create", "empty")
    assert filled("tail", "empty").out == b""


def test_a_tail_that_follows_goes_on_with_the_next_record(filled: Run) -> None:
    assert _lines(filled, "-n2", "-f", "--wait", "0.1") == [99, 100]
    assert filled("seal", "t").code == 0
    assert filled("offload", "t").code == 0
    filled("init", "--remote", (Path.cwd() / "remote").as_uri(), directory="two")
    assert _lines(filled, "-n3", directory="two") == [49, 99, 100]  # it is in the remote only
    assert filled("sync", "t", directory="two").code == 0
    filled("append", "t", stdin=b"101\n")
    filled("seal", "t")
    filled("offload", "t")
    assert _lines(filled, "-n1", "-f", "--wait", "1.5", directory="two") == [100, 101]


def test_a_daemon_answers_a_tail(filled: Run, tmp_path: Path) -> None:
    with served(tmp_path / "data", (tmp_path / "remote").as_uri()) as daemon:
        assert _lines(filled, "-n3") == [49, 99, 100]
        daemon.append("t", b"101")
        assert _lines(filled, "-n2", "-f", "--wait", "0.2") == [100, 101]
