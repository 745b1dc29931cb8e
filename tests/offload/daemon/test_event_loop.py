"""The daemon runs on uvloop if it is installed, and on asyncio's loop otherwise. It says which."""

from __future__ import annotations

import asyncio
import sys

import pytest

from offload.daemon.server import announce, event_loop


def test_without_uvloop_the_daemon_runs_on_the_loop_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)  # type: ignore[arg-type]
    assert event_loop() == ("asyncio", asyncio.new_event_loop)


def test_with_uvloop_the_daemon_runs_on_it() -> None:
    uvloop = pytest.importorskip("uvloop")
    assert event_loop() == ("uvloop", uvloop.new_event_loop)


def test_the_first_line_names_the_loop_and_ends_with_the_port(capsys: pytest.CaptureFixture[str]) -> None:
    announce(["unix:/d/seglog.sock", "http://127.0.0.1:7373"], "uvloop")
    assert capsys.readouterr().err == "seglog: serving with uvloop on unix:/d/seglog.sock, http://127.0.0.1:7373\n"
