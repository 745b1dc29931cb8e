"""Test that the jar of the Spark reader is the one that its sources give. `make check` also compiles the sources."""

from __future__ import annotations

import zipfile

from scripts.jar import HOME, JAR, stale


def test_the_jar_is_made_of_the_sources() -> None:
    assert stale(compiles=False) is None


def test_the_jar_has_a_class_for_each_source_and_nothing_of_other_packages() -> None:
    with zipfile.ZipFile(JAR) as jar:
        names = jar.namelist()
        assert {info.date_time for info in jar.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert names == sorted(names)
    roots = [HOME, HOME / "spark-3", HOME / "spark-4"]
    sources = {
        file.relative_to(root).with_suffix(".class").as_posix()
        for root in roots
        for file in root.glob("seglog/**/*.java")
    }
    classes = {name for name in names if name.endswith(".class")}
    assert sources <= classes
    assert {name.partition("$")[0].removesuffix(".class") + ".class" for name in classes} == sources
