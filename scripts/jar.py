"""Makes offload/spark/jvm/seglog-spark.jar from the Java sources beside it: `make jar`.

One jar serves all versions of Spark. What differs between them lies in the folders `spark-3` and `spark-4`. The other
sources, in `seglog`, are compiled against each version, and all compilers have to give the same bytes. pip's pyspark is
one of these versions; Maven brings the others.

The jar is checked in, so that an installation needs no compiler. The same sources and the same release of javac give
the same bytes: the entries are sorted, not compressed, and have a fixed time. The manifest has a hash of the sources,
and the minor versions of Spark that they were compiled against.

`--check` fails if the jar is not current. Without a javac of the release that made the jar, it compares the hash only.
`--installed` compiles against pip's pyspark alone, which is enough to try a change.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["HOME", "JAR", "class_path", "compile_java", "javac_release", "stale", "write_jar"]

HOME = Path(__file__).resolve().parent.parent / "offload" / "spark" / "jvm"
JAR = HOME / "seglog-spark.jar"
RELEASE = 17
_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_PROVIDER = "seglog.spark.SeglogProvider"
_MANIFEST = "META-INF/MANIFEST.MF"
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can hold
_POM = Path(__file__).with_name("spark-class-path.xml")
_ONLY_3 = "seglog/spark/Shim3"  # the classes that only Spark 3 compiles


class Spark(NamedTuple):
    """A release of Spark, and its Scala."""

    release: str
    scala: str

    @property
    def sources(self) -> list[Path]:
        """Return the sources that it compiles, in order."""
        folders = ("seglog", f"spark-{self.release[0]}")
        return sorted(file for folder in folders for file in (HOME / folder).rglob("*.java"))


INSTALLED = Spark(importlib.metadata.version("pyspark"), "2.13")
SPARKS = (
    Spark("3.5.9", "2.12"),
    Spark("3.5.9", "2.13"),
    Spark("4.0.2", "2.13"),
    Spark("4.1.1", "2.13"),
    Spark("4.2.0", "2.13"),
    INSTALLED,
)


def class_path() -> str:
    """Return the class path of pip's pyspark, without importing it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SystemExit("pyspark is not installed: pip install 'seglog[spark]'")
    return f"{Path(found.origin).parent / 'jars'}/*"


def _class_path_of(spark: Spark) -> str:
    if spark == INSTALLED:
        return class_path()
    with tempfile.TemporaryDirectory() as fresh:
        answer = Path(fresh) / "class-path"
        settings = (f"-Dspark.version={spark.release}", f"-Dscala.version={spark.scala}", f"-Dmdep.outputFile={answer}")
        command = ["mvn", "--batch-mode", "--quiet", "--file", str(_POM), *settings, "dependency:build-classpath"]
        subprocess.run(command, check=True)
        return answer.read_text()


def javac_release() -> int | None:
    """Return the release of javac on the path; None without one."""
    if shutil.which("javac") is None:
        return None
    said = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=True)
    found = re.search(r"javac (\d+)", said.stdout + said.stderr)
    return int(found[1]) if found else None


def compile_java(files: Iterable[Path], into: Path, path: str) -> None:
    """Compile Java files. A warning is an error."""
    lints = "-Xlint:all,-processing,-classfile,-path"
    options = ["--release", str(RELEASE), "-proc:none", "-encoding", "UTF-8", lints, "-Werror"]
    command = ["javac", *options, "-d", str(into), "-cp", path, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"javac failed:\n{done.stdout}{done.stderr}")


def _compiled(spark: Spark) -> dict[str, bytes]:
    """Return the classes that one version of Spark gives, by their names in the jar."""
    with tempfile.TemporaryDirectory() as fresh:
        compile_java(spark.sources, Path(fresh), _class_path_of(spark))
        return {file.relative_to(fresh).as_posix(): file.read_bytes() for file in Path(fresh).rglob("*.class")}


def _compiled_by_all() -> dict[str, bytes]:
    """Return the classes of all versions. Fails if two of them give other bytes for a class."""
    classes: dict[str, bytes] = {}
    for spark in SPARKS:
        for name, body in _compiled(spark).items():
            if classes.setdefault(name, body) != body:
                raise SystemExit(f"Spark {spark.release} with Scala {spark.scala} gives another {name}: see Shim.java")
    return classes


def _entries(classes: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the entries of the jar by name."""
    lines = ("Manifest-Version: 1.0", f"Created-By: javac {javac_release()}", _sparks(), _sources())
    manifest = "".join(f"{line}\n" for line in lines)
    return {_MANIFEST: manifest.encode(), _SERVICE: f"{_PROVIDER}\n".encode(), **classes}


def stale(*, compiles: bool = True) -> str | None:
    """Return why the jar is not current; None if it is. Without `compiles`, compare the hash of the sources only."""
    found = _content()
    manifest = found[_MANIFEST].decode()
    if f"{_sources()}\n" not in manifest:
        return "it was made of other sources"
    if f"{_sparks()}\n" not in manifest:
        return "it was made for other versions of Spark"
    if not compiles or f"Created-By: javac {javac_release()}\n" not in manifest:
        return None
    fresh = _entries(_with_kept(_compiled(INSTALLED)))
    other = sorted(name for name in found.keys() | fresh.keys() if found.get(name) != fresh.get(name))
    return f"javac gives another {', '.join(other)}" if other else None


def _content() -> dict[str, bytes]:
    with zipfile.ZipFile(JAR) as jar:
        return {name: jar.read(name) for name in jar.namelist()}


def _with_kept(classes: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return what pip's pyspark compiled, with the classes of the jar that it cannot compile."""
    return {**classes, **{name: body for name, body in _content().items() if name.startswith(_ONLY_3)}}


def _sparks() -> str:
    """Return the line with the minor versions of Spark."""
    minors = dict.fromkeys(spark.release.rpartition(".")[0] for spark in SPARKS)
    return f"Spark-Versions: {' '.join(minors)}"


def _sources() -> str:
    """Return the line with the hash of the sources."""
    digest = hashlib.sha256()
    for file in sorted(HOME.rglob("*.java")):
        body = file.read_bytes()
        digest.update(f"{file.relative_to(HOME).as_posix()} {len(body)}\n".encode() + body)
    return f"Sources-Hash: {digest.hexdigest()[:32]}"  # a line of a manifest has 72 bytes at most


def write_jar(file: Path, entries: Mapping[str, bytes]) -> None:
    """Write the entries into a jar, in the order of their names. The same entries give the same bytes."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as jar:
        for name in sorted(entries):  # META-INF sorts first, as a jar wants it
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = 0o644 << 16
            jar.writestr(entry, entries[name])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the jar is not current")
    parser.add_argument("--installed", action="store_true", help="compile against pip's pyspark alone")
    options = parser.parse_args()
    if options.check:
        if reason := stale():
            print(f"{JAR.name} is not current: {reason}. Run `make jar`", file=sys.stderr)
            return 1
        return 0
    for tool in ("javac",) if options.installed else ("javac", "mvn"):
        if shutil.which(tool) is None:
            print(f"there is no {tool} on the PATH: install a JDK of release 17 or newer, and Maven", file=sys.stderr)
            return 1
    write_jar(JAR, _entries(_with_kept(_compiled(INSTALLED)) if options.installed else _compiled_by_all()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
