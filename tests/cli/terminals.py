"""Run a command on a terminal, in this process for speed."""

from __future__ import annotations

import os
import pty
import re
import signal
import sys
import threading
from collections.abc import Callable

import pytest

from offload.cli.stdio import raise_in_command
from offload.main import main

__all__ = ["Shown", "on_terminal", "without_styles"]

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
Shown = Callable[..., str]


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """`on_terminal("log", "t")` is what the command writes to a terminal of 120 columns."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("PAGER", "")

    def call(*words: str, code: int = 0) -> str:
        master, slave = pty.openpty()
        found: list[bytes] = []
        reader = threading.Thread(target=_read, args=(master, found))
        reader.start()
        with monkeypatch.context() as patch, os.fdopen(slave, "w", encoding="utf-8") as stdout:
            patch.setattr(sys, "argv", ["seglog", "-C", "data", *words])
            patch.setattr(sys, "stdout", stdout)
            with pytest.raises(SystemExit, match=rf"^{code}$"):
                main()
            raise_in_command()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        reader.join()
        os.close(master)
        return b"".join(found).decode().replace("\r\n", "\n")

    return call


def without_styles(text: str) -> str:
    return _STYLE.sub("", text)


def _read(master: int, found: list[bytes]) -> None:
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the last writer has closed the terminal
            return
        found.append(piece)
