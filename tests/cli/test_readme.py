"""The commands of docs/start/ten-lines.md, and the program of README.md, do what they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.worlds.command import Run

_ROOT = Path(__file__).resolve().parents[2]


def examples(page: str, kind: str) -> list[str]:
    """Return the blocks of code of one kind on a page."""
    found = re.findall(rf"^```{kind}\n(.*?)^```", (_ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return found


def test_the_example_of_the_command_restores_what_it_deletes(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "".join(f"line {number}\n" for number in range(1, 6001))
    names = []
    for command in "".join(examples("docs/start/ten-lines.md", "sh")).replace("$PWD", str(tmp_path)).splitlines():
        name, *words = shlex.split(command, comments=True)
        names.append(words[0])
        if name == "export":
            monkeypatch.setenv(*words[0].split("="))
            continue
        if name == "seq":
            assert command == 'seq -f "line %g" 6000 > access.log'
            (tmp_path / "access.log").write_text(lines)
            continue
        assert name == "seglog"
        done = run(*words, directory=None)
        assert done.code == 0, f"{command}: {done.err}"
        if words[0] == "restore":
            assert run("read", "access").text == lines[lines.index("line 5000\n") :]
            assert run("read", "access@rescued").text == lines
    assert {"delete", "restore", "undo"} <= {*names}
    assert run("read", "access@rescued").text == lines
    assert run("read", "access").text == lines


def test_the_example_in_python_reads_the_whole_topic_on_the_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    [block] = examples("README.md", "python")
    exec(compile(block, "README.md", "exec"), {})  # noqa: S102
    assert capsys.readouterr().out == "[b'first', b'second', b'third']\n"
