"""Test the output on a terminal: colours, tables, the pager and progress. Elsewhere the text is plain."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from offload.cli.execution import Bar, ToldBars, progress, while_waiting, with_bars
from offload.cli.session import is_rich
from offload.client import DaemonClient
from offload.operations.command import COMMANDS, Tell
from tests.cli.terminals import Shown, on_terminal, without_styles
from tests.daemons import served
from tests.seams.limits import Limit, set_limit
from tests.waiting import wait_until
from tests.worlds.command import Run

__all__ = ["on_terminal"]


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    run("init", "--remote", (tmp_path / "remote").as_uri())
    run("append", "t", stdin=b"one\ntwo\n")
    run("seal", "t")
    assert run("offload", "t").code == 0
    assert run("branch", "create", "t", "try", "--at", "seq:1").code == 0
    return run


def test_a_terminal_gets_the_same_text_with_colours(started: Run, on_terminal: Shown) -> None:
    for words in (
        ("log", "t", "--graph", "--stat", "-v"),
        ("points", "t", "-v"),
        ("show", "t", "head"),
        ("diff", "t:seq:1"),
    ):
        shown = on_terminal(*words)
        assert shown != without_styles(shown), words
        assert without_styles(shown) == started(*words).text, words


def test_a_terminal_gets_a_table_where_a_pipe_gets_lines(started: Run, on_terminal: Shown) -> None:
    for words, columns in ((("branch", "list", "t"), ["branch", "made"]), (("oplog",), ["number", "time"])):
        header, rule, *rows = without_styles(on_terminal(*words)).splitlines()
        assert header.split()[:2] == columns
        assert set(rule.strip()) == {"─"}
        assert rows
        assert "─" not in started(*words).text


def test_plain_output_is_that_of_a_pipe(started: Run, on_terminal: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = started("log", "t").text
    assert on_terminal("log", "t", "--plain") == pipe
    assert on_terminal("--plain", "branch", "list", "t") == started("branch", "list", "t").text
    assert on_terminal("log", "t", "--json") == started("log", "t", "--json").text
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert on_terminal("log", "t") == pipe


def test_long_output_goes_through_the_pager(started: Run, on_terminal: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "sed s/^/paged:/")
    shown = on_terminal("log", "t")
    assert shown.startswith("paged:")
    assert without_styles(shown) != shown  # a pager shows what the terminal would
    assert " ago  " in shown
    assert "paged:" not in on_terminal("log", "t", "--no-pager")
    assert "paged:" not in on_terminal("log", "t", "--plain")
    assert "paged:" not in on_terminal("read", "t")
    monkeypatch.setenv("PAGER", "true")  # leaves at once
    assert on_terminal("log", "t") == ""
    monkeypatch.setenv("PAGER", "/nosuch/pager")
    assert "lsn 1" in without_styles(on_terminal("log", "t"))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_a_terminal_that_can_is_rich() -> None:
    assert is_rich(_Terminal(), {"TERM": "xterm"})
    for variables in ({"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}, {}):
        assert not is_rich(_Terminal(), variables)
    assert not is_rich(io.StringIO(), {"TERM": "xterm"})


def test_progress_appears_after_a_while_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = _Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    with progress("append t", 10, is_shown=True) as advance:
        advance(10)
    assert stderr.getvalue() == ""
    set_limit(monkeypatch, Limit.PROGRESS_AFTER_S, 0.0)
    for total, told in ((20_000_000, "10.0/20.0 MB"), (None, "10.0/? MB")):
        with progress("append [t]", total, is_shown=True) as advance:
            advance(10_000_000)
            wait_until(lambda told=told: told in stderr.getvalue() and "append [t]" in stderr.getvalue())
        stderr.truncate(0)
    assert list(while_waiting(iter([1, 2]), "gc", is_shown=True)) == [1, 2]
    bar = Bar("gc", None, unit=None)
    wait_until(lambda: "gc" in stderr.getvalue())
    bar.close()
    bar.close()


def test_a_bar_of_a_counter_hides_while_a_result_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = _Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    set_limit(monkeypatch, Limit.PROGRESS_AFTER_S, 0.0)

    def run(tell: Tell) -> Iterator[str]:
        for done in (1, 2):
            tell("recover", 3, done, "topics")
            wait_until(lambda done=done: f"{done}/3" in stderr.getvalue() and "topics" in stderr.getvalue())
            yield f"topic {done}"
            assert stderr.getvalue() == shown[done]  # nothing was drawn while the caller had the result

    shown: dict[int, str] = {}
    for done, found in enumerate(with_bars(run, is_shown=True), 1):
        assert found == f"topic {done}"
        shown[done] = stderr.getvalue()
    assert list(with_bars(lambda _: iter([1, 2]), is_shown=False)) == [1, 2]


def test_a_daemon_tells_its_progress(started: Run, tmp_path: Path) -> None:
    with served(tmp_path / "data", (tmp_path / "remote").as_uri()) as daemon:
        client = DaemonClient(f"unix:{tmp_path / 'data'}")
        for path in ("offload", "sync", "compact"):
            daemon.append("t", path.encode())
            _told(client, "seal")
            first, *_, last = _told(client, path)
            title, total, count, _ = last
            assert first == (f"{path} t", total, 0, "bytes")
            assert (title, total) == (f"{path} t", count)
            assert count > 0 or path == "compact"  # the objects are too few to be merged
        assert _told(client, "sync", topic="t", fetch=True)[0] == ("sync t", None, 0, "commits")
        assert {(title, unit) for title, _, _, unit in _told(client, "gc", grace="0")} == {
            ("gc, reading commits", "volumes"),
            ("gc, searching", "volumes"),
        }
    shown = ToldBars(is_shown=True)
    for each in (first, last):
        shown.tell(*each)
    shown.close()


def _told(client: DaemonClient, path: str, **values: str | bool) -> list[tuple[str, int | None, int, str]]:
    """Run a command, by default on the topic `t`, and return the progress that the daemon told."""
    told: list[tuple[str, int | None, int, str]] = []
    command = COMMANDS[path]
    given = command.arguments(values or {"topic": "t"})
    list(client.results(command, given, remote=None, on_progress=lambda *each: told.append(each)))
    return told
