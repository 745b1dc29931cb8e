"""The stories of docs/stories, the pages of docs/start, docs/concepts and docs/operate, docs/restore.md and
docs/routers.md happen as they read.

They happen block by block, each with the output below it.

```sh      the commands. `seglog` runs in this process, the other stages of a pipe in a shell
```text    the output of the block before, on standard output. `…` stands for anything within a line, and a line
           with nothing else for any lines
A line may end in `|| echo "exit code $?"`: it then fails, with this code. `$(cat FILE)` is the text of that file.
`2>&1` behind a command of seglog takes its standard error too, and `2> FILE` puts it into a file.
```python  a program, in a process of its own
`systemctl start`, `reload` and `stop seglog`  a daemon with the settings of the page: its start, SIGHUP, SIGTERM. The
           port 7373 of the page becomes its own
`seglog serve &`, `kill %1` and `kill -9 %1`  the same start and the same stop, from a shell, and SIGKILL.
           `seglog serve --proxy URL &` starts a proxy, again at the port of the one before
`export SEGLOG_NAME=VALUE …`  the environment of what follows. Other variables are those of the test
`cd "$(mktemp -d)" && export …`  nothing: a page runs in a directory of its own anyway
`init --remote s3://my-bucket/acme`  my-bucket becomes a bucket of a real server
<!-- the way out takes 4 commands -->    so many commands follow up to the next heading, and no more, as the text says
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.daemons import ServedDirectory, served
from tests.waiting import wait_until
from tests.worlds.command import Run

_DOCS = Path(__file__).resolve().parents[2] / "docs"
STORIES = sorted(path for path in (_DOCS / "stories").glob("*.md") if path.stem != "README")
PAGES = sorted(
    path
    for room in ("start", "concepts", "operate")
    for path in (_DOCS / room).glob("*.md")
    if path.stem not in {"README", "words"}
)
PAGES += [_DOCS / "restore.md", _DOCS / "routers.md"]
_PART = re.compile(r"^```(sh|text|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WAY_OUT = re.compile(r"^<!-- the way out takes (\d+) commands -->\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
_PORT = ":7373"
_BUCKET = "my-bucket"
_MIDDLE_TONES = {"#4a90c2", "#5a9e6f", "#c2853a", "#858585"}  # each is at 3:1 or more on white and on near black
_CAT = re.compile(r"\$\(cat (\w+)\)")
_FAILS = ' || echo "exit code $?"'
_FROM_A_SHELL = {
    "seglog serve &": "systemctl start seglog",
    "kill %1": "systemctl stop seglog",
    "kill -9 %1": "systemctl kill seglog",
}
_ELSEWHERE = 'cd "$(mktemp -d)" && export SEGLOG_DIR=data SEGLOG_DAEMON='
_REHEARSAL = "## Rehearse it\n\nIn an empty directory, never beside real data"
_NUMBERS = ("", "", "two", "three", "four", "five", "six", "seven")


#: The stories that `make test` leaves to the long tests: tests/costs.py bounds how many tests of it start a process.
_LONG = {
    "a-hundred-readers",
    "a-live-view-of-orders",
    "a-person-asks-to-be-forgotten",
    "a-topic-deleted-by-mistake",
    "an-upgrade",
    "the-disk-is-full",
    "the-downstream-was-dead",
    "two-machines-by-mistake",
}
_ALL = [
    pytest.param(page, marks=[pytest.mark.long] if page in PAGES or page.stem in _LONG else [], id=page.stem)
    for page in (*STORIES, *PAGES)
]


@pytest.mark.parametrize("page", _ALL)
def test_a_page_happens_as_it_is_written(
    page: Path, run: Run, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page.read_text()
    for program in ("aws", "curl", "openssl"):
        if re.search(rf"^(.* \| )?{program} ", text, re.MULTILINE) and shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    bucket, said = _BUCKET, b""
    if f"init --remote s3://{_BUCKET}/acme" in text:
        bucket = request.getfixturevalue("s3_remote").split("/")[2]
    with closing(_Daemon(tmp_path)) as daemon:
        for kind, block in _parts(text):
            shown = block.replace(_BUCKET, bucket).replace("$PWD", str(tmp_path))
            if kind == "sh":
                for line in shown.splitlines():
                    if line.startswith("export SEGLOG_"):
                        for each in line.split()[1:]:
                            monkeypatch.setenv(*each.split("=", 1))
                lines = [line for line in shown.splitlines() if not line.startswith("export ")]
                said = b"".join(_output(line, run, tmp_path, daemon) for line in lines)
                said = said.replace(bucket.encode(), _BUCKET.encode())
            elif kind == "python":
                said = subprocess.run(
                    [sys.executable, "-c", daemon.named(shown)], capture_output=True, check=True
                ).stdout
            else:
                block = daemon.named(block)
                assert re.fullmatch(_pattern(block), said.decode()), f"{block}\n---\n{said.decode()}"


@pytest.mark.parametrize(
    ("story", "most"),
    [
        ("a-bucket-that-went-bad", 5),
        ("a-person-asks-to-be-forgotten", 6),
        ("a-topic-deleted-by-mistake", 4),
        ("an-upgrade", 5),
        ("cut-out-the-garbage", 4),
        ("hand-a-tenant-its-prefix", 4),
        ("the-disk-is-full", 4),
        ("the-downstream-was-dead", 4),
        ("the-record-that-broke-the-consumer", 4),
        ("try-on-a-branch", 6),
        ("two-machines-by-mistake", 7),
        ("undo-a-bad-delete", 4),
        ("yesterday-at-14-05", 2),
    ],
)
def test_the_way_out_of_a_bad_night_is_short(story: str, most: int) -> None:
    text = STORIES[0].with_stem(story).read_text()
    [(bound, way_out)] = _WAY_OUT.findall(text.partition("\n## The way out\n")[2])
    commands = [line for kind, text in _parts(way_out) if kind == "sh" for line in text.splitlines()]
    assert len(commands) == int(bound) <= most
    assert f"{_NUMBERS[len(commands)]} commands" in way_out.lower()


@pytest.mark.parametrize("story", [pytest.param(path, id=path.stem) for path in STORIES])
def test_a_story_that_is_pasted_beside_real_data_leaves_it_alone(story: Path) -> None:
    text = story.read_text()
    assert _REHEARSAL in text
    commands = next(block for kind, block in _parts(text) if kind == "sh").splitlines()
    assert commands[0] == _ELSEWHERE
    assert text.index(_REHEARSAL) < text.index(_ELSEWHERE)
    assert text.index("## If it says") > text.rindex("\n```\n")  # nothing is to be run behind it


def test_a_page_of_operations_that_is_pasted_beside_real_data_leaves_it_alone() -> None:
    for page in (path for path in PAGES if path.parent.name == "operate"):
        commands = next(block for kind, block in _parts(page.read_text()) if kind == "sh").splitlines()
        assert commands[0] == _ELSEWHERE, page.name
    for room in ("stories", "operate"):
        assert "never beside real data" in " ".join((_DOCS / room / "README.md").read_text().split())


@pytest.mark.parametrize("room", ["stories", "start", "concepts", "operate"])
def test_the_index_names_every_page(room: str) -> None:
    index = (_DOCS / room / "README.md").read_text()
    pages = sorted(path for path in (_DOCS / room).glob("*.md") if path.stem != "README")
    assert sorted(re.findall(r"\]\(([\w-]+)\.md\)", index)) == [path.stem for path in pages]
    for path in pages:
        [title] = re.findall(r"^# (.*)$", path.read_text(), re.MULTILINE)
        assert f"[{title}]({path.name})" in index


def test_each_block_of_a_page_runs() -> None:
    for page in PAGES:
        kinds = re.findall(r"^ *(?:```|~~~)(.*)\n(?:.*\n)*?^ *(?:```|~~~)$", page.read_text(), re.MULTILINE)
        assert kinds, f"{page.name} has no example"
        assert {*kinds} <= {"sh", "text", "python"}, f"{page.name} has a block that no test runs"


def test_each_drawing_has_a_page_and_reads_on_light_and_dark() -> None:
    """A drawing is an SVG whose words are text. It has the colour of the text around it, or middle tones."""
    drawings = sorted((_DOCS / "concepts").glob("*.svg"))
    assert len(drawings) == len([path for path in PAGES if path.parent.name == "concepts"])
    for path in drawings:
        text = path.read_text()
        assert f"]({path.name})" in path.with_suffix(".md").read_text()
        drawing = ET.fromstring(text)  # noqa: S314 - a file of ours
        assert drawing.find("{http://www.w3.org/2000/svg}title") is not None
        assert drawing.find(".//{http://www.w3.org/2000/svg}text") is not None
        assert set(re.findall(r"#\w{6}", text)) <= _MIDDLE_TONES


def _parts(text: str) -> Iterator[tuple[str, str]]:
    for found in _PART.finditer(text):
        yield found[1], found[2]


class _Daemon:
    """The daemon of a page, which serves its data directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self._served: ServedDirectory | None = None
        self._port = ""

    def named(self, text: str) -> str:
        """Return the text with the port of this daemon in the place of the page's."""
        return text.replace(_PORT, self._port) if self._port else text

    def close(self) -> None:
        """Send SIGKILL, if a daemon runs."""
        self._stack.close()
        self._served = None

    def start_proxy(self, url: str) -> None:
        variables = {"SEGLOG_SERVE_PORT": self._port.removeprefix(":") or "0"}
        self._served = ServedDirectory(self._directory / "data", variables, "--proxy", url)
        self._stack.callback(self._served.kill)
        self._port = f":{self._served.port}"

    def systemctl(self, verb: str) -> None:
        """Do what systemd does with the unit of docs/deploy."""
        if verb == "start":
            self._served = self._stack.enter_context(served(self._directory / "data", ""))
            self._port = f":{self._served.port}"
            return
        assert self._served
        if verb == "kill":
            self.close()
        elif verb == "reload":
            lines = len(self._served.lines)
            self._served.process.send_signal(signal.SIGHUP)
            wait_until(lambda: any("settings taken" in line for line in self._served.lines[lines:]))
        else:
            assert verb == "stop"
            self._served.terminate()
            assert self._served.process.wait(60) == 0
            self.close()


def _output(line: str, run: Run, directory: Path, daemon: _Daemon) -> bytes:
    """Run one line, a pipe of stages, and return its standard output. Every stage succeeds, but one before `||`."""
    data = b""
    line = _FROM_A_SHELL.get(line, line)
    if line == _ELSEWHERE:
        return b""
    if line.startswith("seglog serve --proxy "):
        daemon.start_proxy(shlex.split(line)[3])
        return b""
    if line.startswith("systemctl "):
        verb, unit = line.split()[1:]
        assert unit == "seglog"
        daemon.systemctl(verb)
        return b""
    pipe, fails, _ = daemon.named(line).partition(_FAILS)
    pipe = _CAT.sub(lambda found: (directory / found[1]).read_text().strip(), pipe)
    for stage in pipe.split(" | "):
        name, *words = shlex.split(stage)
        if name == "seglog":
            is_shown = words[-1] == "2>&1"
            errors = directory / words[-1] if words[-2:-1] == ["2>"] else None
            done = run(*words[: -1 if is_shown else -2 if errors else None], stdin=data)
            assert (done.code != 0) == bool(fails), f"{line}: {done.err}"
            if errors:
                errors.write_text(done.err)
            data = done.out + (done.err.encode() if is_shown else b"")
            data += f"exit code {done.code}\n".encode() if fails else b""
        else:
            data = subprocess.run(
                ["sh", "-c", stage], cwd=directory, input=data, capture_output=True, check=True
            ).stdout
    return data


def _pattern(text: str) -> str:
    lines = ("(.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + "\n" for line in text.splitlines())
    return "".join(lines) + "?"  # curl ends its output as the body ends
