"""The stories of docs/stories happen as they read: each block of commands, and the output below it.

```sh      the commands. `seglog` runs in this process, the other stages of a pipe in a shell
```text    the output of the block before, on standard output. `…` stands for anything within a line, and a line
           with nothing else for any lines
A line may end in `|| echo "exit code $?"`: it then fails, with this code. `$(cat FILE)` is the text of that file.
```python  a program, in a process of its own
<!-- daemon -->    from here on a daemon serves the data directory. The address of the page becomes its own
<!-- killed -->    the daemon gets SIGKILL, and another one starts
<!-- the way out takes 4 commands -->    so many lines of `seglog` follow, and no more
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

import seglog
from tests.daemons import ServedDirectory, served
from tests.worlds.command import Run

STORIES = sorted(
    path for path in (Path(__file__).resolve().parents[2] / "docs" / "stories").glob("*.md") if path.stem != "README"
)
_PART = re.compile(r"^```(sh|text|python)\n(.*?)^```$|^<!-- (daemon|killed)() -->$", re.MULTILINE | re.DOTALL)
_WAY_OUT = re.compile(r"<!-- the way out takes (\d+) commands -->\n(.*)", re.DOTALL)
_ADDRESS = "http://127.0.0.1:7373"
_CAT = re.compile(r"\$\(cat (\w+)\)")
_FAILS = ' || echo "exit code $?"'


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_story_happens_as_it_is_written(story: Path, run: Run, tmp_path: Path) -> None:
    if " curl " in story.read_text() and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    said, address = b"", _ADDRESS
    with ExitStack() as daemons:
        for kind, text in _parts(story.read_text()):
            shown = text.replace(_ADDRESS, address).replace("$PWD", str(tmp_path))
            if kind == "sh":
                said = b"".join(_output(line, run, tmp_path) for line in shown.splitlines())
            elif kind == "python":
                said = subprocess.run([sys.executable, "-c", shown], capture_output=True, check=True).stdout
            elif kind == "text":
                assert re.fullmatch(_pattern(text), said.decode()), f"{text}\n---\n{said.decode()}"
            else:
                daemons.close()
                address = f"http://127.0.0.1:{daemons.enter_context(_daemon(tmp_path)).port}"


@pytest.mark.parametrize(("story", "most"), [("cut-out-the-garbage", 4), ("yesterday-at-14-05", 2)])
def test_the_way_out_of_a_bad_night_is_short(story: str, most: int) -> None:
    [(bound, way_out)] = _WAY_OUT.findall(STORIES[0].with_stem(story).read_text())
    commands = [line for kind, text in _parts(way_out) if kind == "sh" for line in text.splitlines()]
    assert len(commands) == int(bound) <= most


def test_the_index_names_every_story() -> None:
    index = (STORIES[0].parent / "README.md").read_text()
    assert sorted(re.findall(r"\]\(([\w-]+)\.md\)", index)) == [path.stem for path in STORIES]
    for path in STORIES:
        [title] = re.findall(r"^# (.*)$", path.read_text(), re.MULTILINE)
        assert f"[{title}]({path.name})" in index


def _parts(text: str) -> Iterator[tuple[str, str]]:
    for found in _PART.finditer(text):
        yield found[1] or found[3], found[2] or ""


def _daemon(directory: Path) -> AbstractContextManager[ServedDirectory]:
    """Run a daemon on the data directory of the story. Its end is a SIGKILL."""
    seglog.open(directory / "data").close()
    return served(directory / "data", (directory / "bucket").as_uri(), OFFLOAD_OFFLOAD_AFTER_S="never")


def _output(line: str, run: Run, directory: Path) -> bytes:
    """Run one line, a pipe of stages, and return its standard output. Every stage succeeds, but one before `||`."""
    data = b""
    pipe, fails, _ = line.partition(_FAILS)
    pipe = _CAT.sub(lambda found: (directory / found[1]).read_text().strip(), pipe)
    for stage in pipe.split(" | "):
        name, *words = shlex.split(stage)
        if name == "seglog":
            done = run(*words, stdin=data)
            assert (done.code != 0) == bool(fails), f"{line}: {done.err}"
            data = done.out + (f"exit code {done.code}\n".encode() if fails else b"")
        else:
            data = subprocess.run(
                ["sh", "-c", stage], cwd=directory, input=data, capture_output=True, check=True
            ).stdout
    return data


def _pattern(text: str) -> str:
    lines = ("(.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + "\n" for line in text.splitlines())
    return "".join(lines) + "?"  # curl ends its output as the body ends
