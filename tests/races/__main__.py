"""Run one race again: python -m tests.races SCENE FIRST SECOND SEED"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.races.scenes import scene_of
from tests.races.serial import Judge

if __name__ == "__main__":
    name, first, second, seed = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(scene_of(name, Path(folder)))
        judge.check((first, second), int(seed))
    print("fine", judge.reasons or "")
