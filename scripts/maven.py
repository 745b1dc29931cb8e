"""Write a Maven repository with the jar for Spark: `make maven`.

    python -m scripts.maven [DIR]    DIR is build/maven at first

`spark-submit --packages seglog:seglog-spark:0.1.0 --repositories file:///…/build/maven` finds the jar there. The folder
may be copied to a web server, a bucket or a registry of your own. It has the jar of the checkout, a pom, the Java
sources, and the checksums of all three. The same checkout gives the same bytes.

The pom names no dependency: Spark has all that the jar needs.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tomllib
from pathlib import Path

from scripts.jar import HOME, JAR, write_jar

__all__ = ["coordinates", "write_repository"]

_ROOT = Path(__file__).resolve().parent.parent
_GROUP, _ARTIFACT = "seglog", "seglog-spark"
_POM = """<?xml version="1.0" encoding="UTF-8"?>
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId>
  <artifactId>{artifact}</artifactId>
  <version>{version}</version>
  <name>{artifact}</name>
  <description>Spark's reader of seglog's topics, for Spark 3.5 to 4.3.</description>
  <licenses>
    <license>
      <name>{licence}</name>
    </license>
  </licenses>
</project>
"""


def coordinates() -> str:
    """Return the name of the jar, as `--packages` wants it."""
    return f"{_GROUP}:{_ARTIFACT}:{_project()['version']}"


def write_repository(folder: Path) -> Path:
    """Write the jar, its pom, its sources and their checksums into a repository. Return the folder that has them."""
    group, artifact, version = coordinates().split(":")
    place = folder / group / artifact / version
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    stem = f"{artifact}-{version}"
    shutil.copyfile(JAR, place / f"{stem}.jar")
    sources = {f"seglog/spark/{file.name}": file.read_bytes() for file in HOME.rglob("*.java")}
    write_jar(place / f"{stem}-sources.jar", {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\n", **sources})
    pom = _POM.format(group=group, artifact=artifact, version=version, licence=_project()["license"])
    (place / f"{stem}.pom").write_text(pom)
    for file in sorted(place.iterdir()):
        for kind in ("md5", "sha1", "sha256"):
            (place / f"{file.name}.{kind}").write_text(hashlib.new(kind, file.read_bytes()).hexdigest())
    return place


def _project() -> dict[str, str]:
    return dict(tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"])


if __name__ == "__main__":
    repository = Path(sys.argv[1] if len(sys.argv) > 1 else _ROOT / "build" / "maven").absolute()
    write_repository(repository)
    print(f"--packages {coordinates()} --repositories {repository.as_uri()}")
