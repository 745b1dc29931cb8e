"""Test everything below a directory that stands in the place of a bucket's prefix."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from catalog.errors import StoreUnreachable
from catalog.objects.local import OWN_FOLDERS
from catalog.objects.prefix import LocalPrefix


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_empty(tmp_path: Path) -> None:
    (tmp_path / "acme").mkdir()
    folder = os.open(tmp_path / "acme", os.O_RDONLY)
    for _ in range(17):  # the kernel takes no path of more than 4,096 bytes
        os.mkdir("x" * 250, dir_fd=folder)
        below = os.open("x" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    with closing(LocalPrefix(tmp_path / "acme")) as place, pytest.raises(StoreUnreachable, match="too long"):
        list(place.held())


def test_a_prefix_without_a_directory_is_empty(tmp_path: Path) -> None:
    with closing(LocalPrefix(tmp_path / "acme")) as place:
        assert list(place.held()) == []


def test_a_link_in_the_place_of_the_directory_is_refused_and_its_target_stays(tmp_path: Path) -> None:
    (tmp_path / "globex").mkdir()
    (tmp_path / "globex" / "x").write_bytes(b"globex")
    (tmp_path / "acme").symlink_to("globex")
    with closing(LocalPrefix(tmp_path / "acme")) as place:
        for call in (lambda: list(place.held()), place.clear):
            with pytest.raises(StoreUnreachable, match="a link stands") as raised:
                call()
            assert (tmp_path / "globex").as_uri() in str(raised.value.hint)
    assert (tmp_path / "globex" / "x").read_bytes() == b"globex"


def test_links_below_the_directory_go_and_their_targets_stay(tmp_path: Path) -> None:
    (tmp_path / "globex").mkdir()
    (tmp_path / "globex" / "upload").write_bytes(b"globex")
    (tmp_path / "acme" / "refs").mkdir(parents=True)
    links = {"refs/orders", ".keep", *OWN_FOLDERS}
    for link in links:
        (tmp_path / "acme" / link).symlink_to(tmp_path / "globex")
    with closing(LocalPrefix(tmp_path / "acme")) as place:
        found = list(place.held())
        assert {each.key for each in found} == links
        place.take(found)
        place.clear()
    assert [each.name for each in tmp_path.iterdir()] == ["globex"]
    assert (tmp_path / "globex" / "upload").read_bytes() == b"globex"


def test_what_hidden_folders_hold_is_listed_unless_the_store_made_them(tmp_path: Path) -> None:
    for name in (".keep/deed", "notes/y", ".locks/3f", ".metadata/notes/y"):
        (tmp_path / "acme" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "acme" / name).write_bytes(b"x")
    with closing(LocalPrefix(tmp_path / "acme")) as place:
        found = list(place.held())
        assert {each.key for each in found} == {".keep/deed", "notes/y"}
        place.take(found)
        place.clear()
    assert not (tmp_path / "acme").exists()


def test_a_file_that_comes_after_the_last_list_stays(tmp_path: Path) -> None:
    (tmp_path / "acme" / "refs").mkdir(parents=True)
    with closing(LocalPrefix(tmp_path / "acme")) as place:
        assert list(place.held()) == []
        (tmp_path / "acme" / "refs" / "late").write_bytes(b"acked")
        with pytest.raises(StoreUnreachable, match="not empty"):
            place.clear()
    assert (tmp_path / "acme" / "refs" / "late").read_bytes() == b"acked"
