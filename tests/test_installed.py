"""The wheel in an environment of its own, with the base and no extra: the first examples work, each extra is named.

The environment has the packages of .venv, so the test asks no index.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_NAME = re.compile(r"[\w.-]+")

pytestmark = pytest.mark.long


def _needed(requirements: list[str]) -> dict[str, Distribution]:
    """Return the packages that some requirements need here, without extras."""
    found: dict[str, Distribution] = {}
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = _NAME.match(requirement)
        assert name is not None
        if name[0] not in found and not re.search(r"extra ==|sys_platform == .win|python_version < .3.11", requirement):
            found[name[0]] = distribution(name[0])
            waiting += found[name[0]].requires or []
    return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the environment with the wheel, and links to the packages of the base."""
    place = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)], cwd=ROOT, check=True)
    [wheel] = place.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place / "venv")], check=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(place / "venv" / "bin" / "python"),
    ]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    [packages] = (place / "venv" / "lib").glob("python3.*/site-packages")
    [own] = packages.glob("seglog-*.dist-info")
    needed = _needed(Distribution.at(own).requires or [])
    assert {"boto3", "numpy"} <= set(needed)
    assert needed.keys().isdisjoint({"pyarrow", "starlette", "structlog", "uvicorn"})
    for each in needed.values():
        for top in {file.parts[0] for file in each.files or () if file.parts[0] != ".."}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(each.locate_file(top))))
    return place / "venv" / "bin"


def _run(installed: Path, place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "SEGLOG_"))}
    variables = {**kept, "PATH": f"{installed}:{kept['PATH']}", "JAVA_HOME": str(place)}
    done = subprocess.run(words, cwd=place, env=variables, capture_output=True, text=True, check=False, timeout=120)
    done.stderr = re.sub(r"^.* is in memory \(tmpfs\).*\n", "", done.stderr, flags=re.MULTILINE)
    return done


def _examples(page: str, kind: str) -> str:
    found = re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return "".join(found)


def test_the_first_examples_need_no_extra(installed: Path, tmp_path: Path) -> None:
    done = _run(installed, tmp_path, "sh", "-e", "-c", _examples("docs/start/ten-lines.md", "sh"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "line 1\n" in done.stdout
    for place, page in (("readme", "README.md"), ("page", "docs/start/ten-lines.md")):
        (tmp_path / place).mkdir()
        done = _run(installed, tmp_path / place, "python", "-c", _examples(page, "python"))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith("[b'first', b'second', b'third']\n")


def test_the_demo_needs_no_extra(installed: Path, tmp_path: Path) -> None:
    done = _run(installed, tmp_path, "seglog", "demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert "pip install 'seglog[spark]'" in done.stdout


def test_what_needs_an_extra_names_it_in_one_line(installed: Path, tmp_path: Path) -> None:
    remote = (tmp_path / "remote").as_uri()
    assert _run(installed, tmp_path, "seglog", "-C", "data", "init", "--remote", remote).returncode == 0
    assert _run(installed, tmp_path, "seglog", "-C", "data", "append", "t", "data/seglog.toml").returncode == 0
    for words, extra in (
        ("serve", "daemon"),
        ("serve --tenants", "daemon"),
        ("doctor --spark", "spark"),
        ("export t out --format parquet", "parquet"),
        ("--remote s3://bucket/acme tenant check acme", "tenants"),
    ):
        done = _run(installed, tmp_path, "seglog", "-C", "data", *words.split())
        assert done.returncode != 0, words
        assert f"pip install 'seglog[{extra}]'" in done.stdout + done.stderr, words
        assert done.stderr.count("\n") == 1, done.stderr
    for code, extra in (
        ("import seglog; seglog.open('data').topic('t').read_arrow()", "arrow"),
        ("import seglog.client.aio", "client"),
    ):
        done = _run(installed, tmp_path, "python", "-c", code)
        assert done.stderr.splitlines()[-1] == f"Hint: install it: `pip install 'seglog[{extra}]'`", done.stderr
