"""A package of another project that has a name of ours is named, with its place."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worlds.command import Run, run

__all__ = ["run"]

ROOT = Path(__file__).parents[1]

_PROGRAM = """
import seglog
with seglog.open("data") as log:
    print(log.topic("t").append([b"x"]))
import offload
"""


@pytest.mark.parametrize("name", ["catalog.py", "catalog/__init__.py", "offload.py"])
def test_a_file_beside_a_program_that_hides_ours_is_named_and_the_log_works(tmp_path: Path, name: str) -> None:
    hiding = tmp_path / name
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("")
    (tmp_path / "program.py").write_text(_PROGRAM)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "range(1, 2)\n"
    kind = name.partition(".")[0].partition("/")[0]
    place = hiding if name.endswith(f"{kind}.py") else hiding.parent
    text = f"`{kind}` is {place}, which hides seglog's own package of that name. Rename it"
    assert f"RuntimeWarning: {text}" in done.stderr
    if kind == "catalog":
        assert done.stderr.splitlines()[-1].startswith(f"ImportError: {text}")


def test_without_such_a_file_nothing_is_said_and_nothing_is_imported(tmp_path: Path) -> None:
    """A namespace, which is a directory without a module, hides nothing."""
    (tmp_path / "catalog").mkdir()
    code = "import sys, seglog; sys.exit({'catalog', 'offload'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "set()\n")


def _found(run: Run) -> tuple[str, str, str]:
    lines = map(json.loads, run("--json", "doctor").text.splitlines())
    [check] = [line for line in lines if line.get("check") == "packages"]
    return check["outcome"], check["found"], check["advice"]


def test_doctor_names_what_hides_a_package_and_who_shares_one(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("init").code == 0
    assert _found(run) == ("ok", "no other package has a name of ours", "")
    (tmp_path / "offload.py").write_text("")
    outcome, found, advice = _found(run)
    assert (outcome, advice) == ("warn", "rename it")
    assert found.startswith(f"{tmp_path}/offload.py hides a package of seglog")
    other = tmp_path / "site" / "library_catalog-1.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: library-catalog\nVersion: 1.0\n")
    (other / "RECORD").write_text("catalog/__init__.py,,\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    outcome, found, _ = _found(run)
    assert (outcome, found) == ("fail", "library-catalog has files in the package catalog as well")


@pytest.mark.long
def test_a_sourceless_copy_knows_its_own_packages(tmp_path: Path) -> None:
    """As in a frozen program, and beside a finder of the old kind."""
    for name in ("seglog", "catalog", "offload"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.java"))
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-b", "."], cwd=tmp_path, check=True)
    for source in tmp_path.rglob("*.py"):
        source.unlink()
    old = "type('Old', (), {'find_module': lambda *_: None})()"
    code = f"import sys; sys.meta_path.insert(0, {old}); import seglog, offload; print(seglog.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{tmp_path}/seglog/__init__.pyc\n", "")
