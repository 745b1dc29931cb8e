"""The examples of README.md do what they say, with a directory in the place of the bucket."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.worlds.command import Run

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def example(heading: str, kind: str = "") -> str:
    """Return the first block of code below a heading."""
    found = re.search(rf"^## {heading}\n.*?^```{kind}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_of_the_command_restores_what_it_deletes(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "".join(f"line {number}\n" for number in range(1, 6001))
    (tmp_path / "access.log").write_text(lines)
    block = example("One minute, no cloud account", "sh").replace("$PWD", str(tmp_path))
    block = block.replace("/var/log/nginx/access.log", "access.log")
    texts = {}
    for line in block.splitlines():
        for command in line.split(" && "):
            name, *words = shlex.split(command, comments=True)
            if name == "export":
                monkeypatch.setenv(*words[0].split("="))
                continue
            assert name == "seglog"
            done = run(*words, directory=None)
            assert done.code == 0, f"{command}: {done.err}"
            texts[words[0], words[1]] = done.text
            if words[0] == "restore":
                assert run("read", "access").text == lines[lines.index("line 5000\n") :]
    assert texts["read", "access@rescued"] == lines
    assert run("read", "access").text == lines


def test_the_example_in_python_reads_half_of_the_topic_on_the_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    block = example("Python", "python").replace("s3://my-bucket/acme", f"{tmp_path.as_uri()}/remote")
    exec(compile(block, "README.md", "exec"), {})  # noqa: S102
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(" ", 1)[0] for line in printed[:-1]] == ["1", "2"]
    assert printed[-1] == "[b'first']"
