"""Test the data directories of tenants: their owner, links, and a root that others may write."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload.tenants.directories import OWNER_FILE, UnsafeDirectory, check_directory, check_root, claim


def test_the_first_opening_gives_a_directory_to_its_tenant(tmp_path: Path) -> None:
    directory = tmp_path / "globex"
    directory.mkdir()
    claim(directory, "globex")
    claim(directory, "globex")
    assert (directory / OWNER_FILE).read_text() == "globex\n"
    assert (directory / OWNER_FILE).stat().st_mode & 0o777 == 0o600
    moved = directory.rename(tmp_path / "aaa")
    with pytest.raises(UnsafeDirectory, match="belongs to the tenant globex") as caught:
        claim(moved, "aaa")
    assert str(moved / OWNER_FILE) in (caught.value.hint or "")
    (moved / OWNER_FILE).unlink()
    claim(moved, "aaa")
    assert (moved / OWNER_FILE).read_text() == "aaa\n"


@pytest.mark.parametrize("content", [b"", b"\xff\n", b"acme2\n", b"acme globex\n"])
def test_a_file_with_another_content_is_no_claim(tmp_path: Path, content: bytes) -> None:
    (tmp_path / OWNER_FILE).write_bytes(content)
    with pytest.raises(UnsafeDirectory, match="belongs to"):
        claim(tmp_path, "acme")
    assert (tmp_path / OWNER_FILE).read_bytes() == content


def test_a_link_is_no_directory_of_a_tenant(tmp_path: Path) -> None:
    (tmp_path / "globex").mkdir()
    (tmp_path / "acme").symlink_to(tmp_path / "globex")
    check_directory(tmp_path / "globex")
    with pytest.raises(UnsafeDirectory, match="symbolic link") as caught:
        check_directory(tmp_path / "acme")
    assert caught.value.exit_code == 2
    (tmp_path / "globex" / OWNER_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeDirectory):
        claim(tmp_path / "globex", "globex")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("mode", "is_safe"), [(0o700, True), (0o755, True), (0o770, False), (0o707, False), (0o1777, False)]
)
def test_others_may_not_write_into_the_root(tmp_path: Path, mode: int, is_safe: bool) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(mode)
    if is_safe:
        check_root(root)
        return
    with pytest.raises(UnsafeDirectory, match="written by others") as caught:
        check_root(root)
    assert caught.value.hint == f"chmod go-w {root}"
