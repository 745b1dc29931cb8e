"""A Java process that answers questions about the JVM reader's decoders: `tests/offload/spark/jvm`."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.jar import JAR, class_path, compile_java
from tests.offload.spark.session import OF_A_SHORT_RUN

__all__ = ["Judge", "judge"]

_SOURCES = Path(__file__).parent / "jvm"


class Judge:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ask(self, **question: Any) -> dict[str, Any]:
        """Return the answer to a question. The class of that name has the questions."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        body = json.dumps(question).encode()
        stdin.write(struct.pack(">i", len(body)) + body)
        stdin.flush()
        head = stdout.read(4)
        assert head, "the judge ended: see its standard error above"
        answer = json.loads(stdout.read(struct.unpack(">i", head)[0]))
        assert isinstance(answer, dict)
        return answer


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Start one process over the jar that is checked in."""
    if shutil.which("javac") is None:
        pytest.skip("javac is not here: the judge cannot be compiled")
    classes = tmp_path_factory.mktemp("judge")
    path = f"{JAR}:{class_path()}"
    compile_java(sorted(_SOURCES.rglob("*.java")), classes, path)
    command = ["java", "-Xmx256m", *OF_A_SHORT_RUN.split(), "-cp", f"{classes}:{path}", "seglog.spark.Judge"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Judge(process)
        assert process.stdin
        process.stdin.write(struct.pack(">i", -1))
        process.stdin.close()
