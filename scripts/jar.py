"""Makes offload/spark/jvm/seglog-spark.jar from the Java sources beside it: `make jar`.

The jar is checked in, so that an installation needs no compiler. The same sources and the same release of javac give
the same bytes: the entries are sorted, not compressed, and have a fixed time. The manifest has a hash of the sources,
and the minor version of the Spark that they were compiled against.

`--check` fails if the jar is not current. Without a javac of the release that made the jar, it compares the hash only.
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
from collections.abc import Mapping
from pathlib import Path

__all__ = ["HOME", "JAR", "build", "class_path", "compile_java", "javac_release", "stale"]

HOME = Path(__file__).resolve().parent.parent / "offload" / "spark" / "jvm"
JAR = HOME / "seglog-spark.jar"
RELEASE = 17
_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_PROVIDER = "seglog.spark.SeglogProvider"
_MANIFEST = "META-INF/MANIFEST.MF"
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can hold


def class_path() -> str:
    """Return the class path of pip's pyspark, without importing it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SystemExit("pyspark is not installed: pip install 'seglog[spark]'")
    return f"{Path(found.origin).parent / 'jars'}/*"


def javac_release() -> int | None:
    """Return the release of javac on the path; None without one."""
    if shutil.which("javac") is None:
        return None
    said = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=True)
    found = re.search(r"javac (\d+)", said.stdout + said.stderr)
    return int(found[1]) if found else None


def compile_java(sources: Path, into: Path, path: str) -> None:
    """Compile all Java files below `sources`. A warning is an error."""
    files = sorted(str(file) for file in sources.rglob("*.java"))
    lints = "-Xlint:all,-processing,-classfile,-path"
    options = ["--release", str(RELEASE), "-proc:none", "-encoding", "UTF-8", lints, "-Werror"]
    done = subprocess.run(
        ["javac", *options, "-d", str(into), "-cp", path, *files], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"javac failed:\n{done.stdout}{done.stderr}")


def build() -> dict[str, bytes]:
    """Compile the sources, and return the jar's entries by name."""
    with tempfile.TemporaryDirectory() as fresh:
        compile_java(HOME, Path(fresh), class_path())
        classes = {file.relative_to(fresh).as_posix(): file.read_bytes() for file in Path(fresh).rglob("*.class")}
    lines = ("Manifest-Version: 1.0", f"Created-By: javac {javac_release()}", _spark(), _sources())
    manifest = "".join(f"{line}\n" for line in lines)
    return {_MANIFEST: manifest.encode(), _SERVICE: f"{_PROVIDER}\n".encode(), **classes}


def stale(*, compiles: bool = True) -> str | None:
    """Return why the jar is not current; None if it is. Without `compiles`, compare the hash of the sources only."""
    with zipfile.ZipFile(JAR) as jar:
        found = {name: jar.read(name) for name in jar.namelist()}
    manifest = found[_MANIFEST].decode()
    if f"{_sources()}\n" not in manifest:
        return "it was made of other sources"
    if f"{_spark()}\n" not in manifest:
        return "it was made for another Spark"
    if not compiles or f"Created-By: javac {javac_release()}\n" not in manifest:
        return None
    fresh = build()
    other = sorted(name for name in found.keys() | fresh.keys() if found.get(name) != fresh.get(name))
    return f"javac gives another {', '.join(other)}" if other else None


def _spark() -> str:
    """Return the line with the minor version of pip's pyspark."""
    return f"Spark-Version: {'.'.join(importlib.metadata.version('pyspark').split('.')[:2])}"


def _sources() -> str:
    """Return the line with the hash of the sources."""
    digest = hashlib.sha256()
    for file in sorted(HOME.rglob("*.java")):
        body = file.read_bytes()
        digest.update(f"{file.relative_to(HOME).as_posix()} {len(body)}\n".encode() + body)
    return f"Sources-Hash: {digest.hexdigest()[:32]}"  # a line of a manifest has 72 bytes at most


def _write(entries: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(JAR, "w", zipfile.ZIP_STORED) as jar:
        for name in sorted(entries):  # META-INF sorts first, as a jar wants it
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = 0o644 << 16
            jar.writestr(entry, entries[name])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the jar is not current")
    if not parser.parse_args().check:
        if javac_release() is None:
            print("there is no javac on the PATH: install a JDK of release 17 or newer", file=sys.stderr)
            return 1
        _write(build())
        return 0
    if reason := stale():
        print(f"{JAR.name} is not current: {reason}. Run `make jar`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
