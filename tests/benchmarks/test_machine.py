from __future__ import annotations

from pathlib import Path

from benchmarks.machine import describe, file_system


def test_the_file_system_is_that_of_the_longest_mount_above_the_directory() -> None:
    mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /proc tmpfs rw 0 0\n/dev/vdb /proc/self xfs rw 0 0\n"
    assert file_system(Path("/nowhere"), mounts) == "ext4 on /dev/vda"
    assert file_system(Path("/proc"), mounts) == "tmpfs on tmpfs"
    assert file_system(Path("/proc"), "") == "unknown file system"


def test_the_line_says_what_a_figure_depends_on(tmp_path: Path) -> None:
    machine = describe(tmp_path)
    assert f"{machine.cores} cores" in machine.line()
    assert machine.date in machine.line()
