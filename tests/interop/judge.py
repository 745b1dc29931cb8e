"""Runs Apache Pulsar's own code, in two releases, each built once a test session (tests/interop/pulsar).

A test sends a command as one line and reads the answers as lines. Without a JDK, without Maven, or if the registry does
not answer, the tests are skipped with the reason. Any other trouble is a failure.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop.maven import run_maven
from tests.s3_server import AS_HARNESS, REGION

__all__ = ["RELEASES", "Answer", "Judge", "JudgeRefused", "judge"]

RELEASES = ("2.10.1", "4.0.6")
"""The oldest release that we claim to serve, and the newest that Maven Central has as one archive."""

PROJECT = Path(__file__).parent / "pulsar"
_TARGET = PROJECT / "target"
_DOWNLOAD_S = 240
_COMMAND_S = 180


class JudgeRefused(Exception):
    """Pulsar's code threw. The text is the chain of its exceptions."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The entries that a command returned, and its last line."""

    entries: list[dict[str, Any]]
    end: dict[str, Any]


class Judge:
    """A running judge of one release of Pulsar. It takes one command at a time."""

    def __init__(self, release: str, process: subprocess.Popen[str], log: Path) -> None:
        self.release = release
        self._process = process
        self._log = log

    def ask(self, *words: object) -> Answer:
        """Send one command and return its answer. Raises `JudgeRefused`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        entries: list[dict[str, Any]] = []
        late = threading.Timer(_COMMAND_S, self._process.kill)
        late.start()
        try:
            for line in self._process.stdout:
                found = json.loads(line)
                if "error" in found:
                    raise JudgeRefused(found["error"])
                if "done" in found:
                    return Answer(entries, found)
                entries.append(found)
        finally:
            late.cancel()
        pytest.fail(f"the judge ended, or was ended after {_COMMAND_S} s:\n{self._log.read_text()[-4000:]}")


@pytest.fixture(scope="session", params=RELEASES)
def judge(request: pytest.FixtureRequest, s3_endpoint: str) -> Iterator[Judge]:
    """A judge for each release. Its object storage is the tests' S3 server."""
    release = str(request.param)
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not here: Apache Pulsar's code cannot be asked")
    _fetch(release)
    class_path = _compile(release)
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "judge.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                ["java", "-Xmx1g", "-cp", class_path, "judge.Judge", s3_endpoint, *AS_HARNESS.values(), REGION],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        with process:
            yield Judge(release, process, log)
            process.kill()


def _fetch(release: str) -> None:
    """Download Pulsar's archive if Maven does not have it yet, and unpack it."""
    run_maven(PROJECT / "pom.xml", f"-Dpulsar.version={release}", "process-resources", within_s=_DOWNLOAD_S)


def _compile(release: str) -> str:
    """Compile the judge against one release. Returns its class path."""
    unpacked = _TARGET / f"pulsar-{release}"
    pulsar = f"{unpacked}:{unpacked / 'META-INF' / 'bundled-dependencies'}/*"
    classes = _TARGET / f"classes-{release}"
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    folders = (PROJECT / "src", PROJECT / "releases" / release)
    sources = sorted(str(path) for folder in folders for path in folder.rglob("*.java"))
    run = subprocess.run(
        ["javac", "-Xlint:all,-processing,-classfile,-try", "-Werror", "-d", str(classes), "-cp", pulsar, *sources],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        pytest.fail(f"javac failed:\n{run.stdout}{run.stderr}")
    return f"{classes}:{pulsar}"
