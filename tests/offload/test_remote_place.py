"""A remote in a directory and a data directory are apart."""

from __future__ import annotations

from pathlib import Path

import pytest

import offload
import seglog
from offload.errors import InvalidRemote


def within(tmp_path: Path) -> Path:
    return tmp_path / "data/remote"


def the_same(tmp_path: Path) -> Path:
    return tmp_path / "data"


def around(tmp_path: Path) -> Path:
    return tmp_path


def linked(tmp_path: Path) -> Path:
    (tmp_path / "remote").symlink_to(tmp_path / "data/topics")
    return tmp_path / "remote"


@pytest.mark.parametrize("place", [within, the_same, around, linked])
def test_a_remote_in_or_around_the_data_directory_is_refused(tmp_path: Path, place: object) -> None:
    assert callable(place)
    with seglog.open(tmp_path / "data") as log:
        log.topic("t").append([b"x"])
        url = place(tmp_path).as_uri()
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(InvalidRemote, match="data directory") as caught:
            offload.attach(log, url)
        assert caught.value.exit_code == 2
        assert sorted(tmp_path.rglob("*")) == before
        with offload.attach(log, (tmp_path / "beside").as_uri()) as archive:
            archive.offload("t")
