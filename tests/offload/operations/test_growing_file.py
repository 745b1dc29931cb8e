"""Test the place of a follower on the disk: a torn write, and a file that is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from offload.operations.growing_file import Place, PlaceFile
from seglog import FileCorrupt

_PLACE = Place("t\u00fc", "p", inode=(1, 2))


def test_a_torn_write_leaves_the_place_before_it(tmp_path: Path) -> None:
    path = tmp_path / "place"
    places = PlaceFile(path)
    assert places.load(_PLACE.topic) is None
    former: bytes | None = None
    for number in range(4):
        before = path.read_bytes()
        places.save(replace(_PLACE, number=number))
        after = path.read_bytes()
        assert PlaceFile(_copy(tmp_path, after)).load(_PLACE.topic) == replace(_PLACE, number=number)
        if former is not None:
            changed = [at for at in range(len(after)) if before[at : at + 1] != after[at : at + 1]]
            for cut in (changed[0] + 1, changed[len(changed) // 2]):
                torn = after[:cut] + before[cut:].ljust(len(after) - cut, b"\0")
                assert PlaceFile(_copy(tmp_path, torn)).load(_PLACE.topic) == replace(_PLACE, number=number - 1)
        former = before


def test_damage_of_both_slots_is_told(tmp_path: Path) -> None:
    path = tmp_path / "place"
    places = PlaceFile(path)
    places.save(_PLACE)
    places.save(_PLACE)
    damaged = bytearray(path.read_bytes())
    damaged[5] ^= 1
    assert PlaceFile(_copy(tmp_path, bytes(damaged))).load(_PLACE.topic) == _PLACE
    damaged[4096 + 5] ^= 1
    with pytest.raises(FileCorrupt, match="no place"):
        PlaceFile(_copy(tmp_path, bytes(damaged))).load(_PLACE.topic)


def _copy(root: Path, data: bytes) -> Path:
    path = root / "copy"
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path
