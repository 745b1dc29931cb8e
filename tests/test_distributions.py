"""The wheel and the sdist have what a user needs, and nothing else of the checkout."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


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
