"""Test the images that a power cut may leave of a simulated disk."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path

from tests.faults.disk import Image, SimulatedDisk

FOLDER = Path("/parent")
NAMES = "abcd"


def test_changes_are_dropped_and_kept_in_pairs() -> None:
    disk = SimulatedDisk(Image({str(FOLDER): None}))
    for name in NAMES:
        disk.close(disk.open(FOLDER / name, os.O_CREAT))
    images = disk.moment().images(random.Random(1), subsets=12)
    found = {frozenset(path[-1] for path, body in image.tree.items() if body is not None) for image in images}
    assert {frozenset(pair) for pair in itertools.combinations(NAMES, 2)} <= found


def test_the_pairs_of_many_changes_are_bounded() -> None:
    disk = SimulatedDisk(Image({str(FOLDER): None}))
    for number in range(20):
        disk.close(disk.open(FOLDER / str(number), os.O_CREAT))
    # Prefixes; each change alone; each change dropped; pairs twice; sets.
    assert len(list(disk.moment().images(random.Random(1), subsets=6))) == 21 + 40 + 6 + 6
