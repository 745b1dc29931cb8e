"""Test Ctrl-C at each import of a command: exit code 130, and no traceback.

The test imports `offload.main` before it counts: until then Python itself handles the signal.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.worlds.command import Run

INTERRUPTED = """
import os, signal, sys
from offload.main import main

class Finder:
    count = 0
    def find_spec(self, name, path, target=None):
        Finder.count += 1
        if Finder.count == place:
            os.kill(os.getpid(), signal.SIGINT)

sys.argv = ["seglog", *sys.argv[2:]]
sys.meta_path.insert(0, Finder())
place = 0
while True:
    place += STRIDE
    child = os.fork()
    if not child:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        main()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 130:
        break
print(place, code)
"""


@pytest.mark.parametrize(
    ("words", "stride", "least"),
    [
        (["--help"], 1, 8),
        (["read", "--help"], 1, 8),
        (["--version"], 1, 6),
        (["nonsense"], 1, 8),
        (["-C", "data", "status"], 67, 200),
        pytest.param(["-C", "data", "read", "t"], 67, 200, marks=pytest.mark.long),
    ],
)
def test_an_interrupt_at_an_import_ends_the_command(
    run: Run, tmp_path: Path, words: list[str], stride: int, least: int
) -> None:
    assert run("init", "--remote", f"file://{tmp_path}/archive").code == 0
    assert run("append", "t", stdin=b"a\n").code == 0
    code = INTERRUPTED.replace("STRIDE", str(stride))
    done = subprocess.run(
        [sys.executable, "-c", code, "--", *words], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    place, last = map(int, done.stdout.split())
    assert last == (2 if words == ["nonsense"] else 0)
    assert place > least
    assert "Traceback" not in done.stderr
    assert "KeyboardInterrupt" not in done.stderr


def test_an_ignored_interrupt_stays_ignored(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from offload.cli.stdio import end_at_once, raise_in_command\n"
        "end_at_once(); raise_in_command()\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "print('alive')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "alive\n"
