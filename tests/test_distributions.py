"""The wheel and the sdist have what a user needs, and nothing else of the checkout."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.long
def test_the_wheel_and_the_sdist_have_the_packages_and_no_tests(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)], cwd=ROOT, check=True)
    [wheel], [sdist] = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened:
        in_wheel = opened.namelist()
    with tarfile.open(sdist) as opened:
        in_sdist = [Path(*Path(name).parts[1:]) for name in opened.getnames()]
    folders = {name.partition("/")[0] for name in in_wheel}
    assert {each for each in folders if not each.endswith(".dist-info")} == {"seglog", "catalog", "offload"}
    assert [name for name in in_wheel if name.endswith(".java")] == []
    assert "offload/spark/jvm/seglog-spark.jar" in in_wheel
    assert {path.parts[0] for path in in_sdist if len(path.parts) > 1} == {"seglog", "catalog", "offload", "docs"}
    assert {path.name for path in in_sdist if len(path.parts) == 1} >= {"LICENSE", "pyproject.toml", "README.md"}
    assert {path.suffix for path in in_sdist}.isdisjoint({".pyc", ".whl", ".gz", ".so"})


def _built(source: Path, place: Path, *targets: str) -> dict[str, str]:
    """Return the SHA-256 of what a build in `source` makes, by the names of the files."""
    words = [sys.executable, "-m", "hatchling", "build", "-d", str(place), *targets]
    kept = {name: text for name, text in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    subprocess.run(words, cwd=source, env=kept, check=True, capture_output=True)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in place.iterdir()}


@pytest.mark.long
def test_two_builds_have_equal_bytes_also_of_a_copy_and_of_the_sdist(tmp_path: Path) -> None:
    """A copy has other times, modes and a bytecode cache; the sdist has all that the wheel needs, without an index."""
    first = _built(ROOT, tmp_path / "first")
    assert len(first) == 2
    copied = tmp_path / "copied"
    for name in ("seglog", "catalog", "offload", "docs"):
        shutil.copytree(ROOT / name, copied / name, copy_function=shutil.copyfile)
    for file in [*ROOT.glob("*.md"), ROOT / "LICENSE", ROOT / "pyproject.toml", ROOT / ".gitignore"]:
        shutil.copyfile(file, copied / file.name)
    (copied / "seglog" / "files" / "file_system.py").chmod(0o600)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "seglog"], cwd=copied, check=True)
    assert _built(copied, tmp_path / "second") == first

    [sdist] = (tmp_path / "first").glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", sdist, "-C", tmp_path], check=True)
    source = tmp_path / sdist.name.removesuffix(".tar.gz")
    wheel = _built(source, tmp_path / "third", "-t", "wheel")
    assert wheel.items() <= first.items()
    for file in sorted((tmp_path / "first").iterdir()):
        print(f"{file.name}: {file.stat().st_size:,} bytes, sha256 {first[file.name]}")
