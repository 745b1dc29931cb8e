"""Show the way of a record on a text, as a user would type it: `seglog demo`.

Each step is the real `seglog` command in a process of its own. The history lies in a directory, so the demo needs
neither a bucket nor Java. If PySpark and Java are there, the last step counts two states in Spark.

    DIR/.seglog-demo    DIR belongs to the demo: the next run begins anew
    DIR/text.log        the text: that of the caller may grow meanwhile
    DIR/data            the data directory
    DIR/archive         the remote
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from offload.errors import Misuse, OffloadError, directory_not_empty, no_such_file
from seglog.base.dataclasses import dataclass

_MARK = ".seglog-demo"
_TOPIC = "events"
_BRANCH = "before-the-mistake"
_LINES = 20_000
_PROGRAM = """\
from pyspark.sql import SparkSession
from offload.spark import register
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
events = spark.read.format("seglog").option("topic", "{topic}")
print(events.load("{url}").count(), "records now")
print(events.option("versionAsOf", {lsn}).load("{url}").count(), "records after the mistake")
"""


@dataclass(frozen=True, slots=True)
class DemoStep:
    """A step: why, the command, and its output. `command` is empty for a remark."""

    says: str
    command: str = ""
    output: str = ""


def demo(directory: Path, file: Path | None, note: Callable[[str], None]) -> Iterator[DemoStep]:
    """Yield the steps as they are done. `file` is the text, or None for a log that the demo makes up.

    `note` takes what a person has to know before a long step.

    Raises `Missing`, `Misuse`, `Conflict`, `OffloadError`.
    """
    if file is not None and not file.is_file():
        raise no_such_file(file)
    wanted = _access_log() if file is None else file.read_bytes()
    count = len(wanted.removesuffix(b"\n").split(b"\n"))
    if count < 2:
        raise Misuse(f"{file} has {count} line, and the demo deletes half of the lines")
    _make_empty(directory)
    text = directory / "text.log"
    text.write_bytes(wanted)
    return _story(directory, shlex.quote(str(text)), wanted, count, note)


def _story(directory: Path, text: str, wanted: bytes, count: int, note: Callable[[str], None]) -> Iterator[DemoStep]:
    url = (directory / "archive").resolve().as_uri()
    seglog, topic, branch = f"seglog -C {shlex.quote(str(directory / 'data'))}", _TOPIC, f"{_TOPIC}@{_BRANCH}"

    def step(says: str, words: str) -> DemoStep:
        command = f"{seglog} {words}"
        return DemoStep(says, command, _run(command).decode(errors="replace"))

    yield step("1. A log, and an archive for its history: here a directory, else a bucket.", f"init --remote {url}")
    yield step(f"2. {count:,} lines become records, which are on the disk now.", f"append {topic} {text}")
    yield step("3. Send them to the archive, read that copy back, and drop the copy in the log.", f"seal {topic}")
    yield step("", f"offload {topic} --drop-hot")
    compare = f"{seglog} read {topic} | cmp - {text}"
    if _run(f"{seglog} read {topic}") != wanted:
        raise _failed(compare, "what came back is not what went in")
    yield DemoStep("4. Read it, now from the archive alone.", compare, "(no difference)")

    half = count // 2
    mistake = step(
        f"5. A mistake: a job deletes the first {half:,} records.", f"delete {topic} --before {half + 1} --yes"
    )
    yield mistake
    lsn = int(re.findall(r"lsn (\d+)", mistake.output)[0])
    yield step("6. Each change is a commit. When did lines go missing? A check of yours finds out.", f"log {topic}")
    check = shlex.quote("test $(wc -l) -eq %d" % wanted.count(b"\n"))  # noqa: UP031 - no backslash in an f-string
    yield step("", f"bisect {topic} --good lsn:{lsn - 1} run sh -c {check}")
    yield step(
        "7. The state before it, as a branch: no data is copied.", f"restore {topic} --to lsn:{lsn - 1} --as {_BRANCH}"
    )
    for name in (branch, topic):
        yield DemoStep("", f"{seglog} read {name} | wc -l", str(_run(f"{seglog} read {name}").count(b"\n")))
    yield step("8. Or take the mistake back.", f"undo {topic} lsn:{lsn}")
    yield step("", f"status {topic}")
    yield _in_spark(url, lsn, note)
    tries = "\n".join(f"  {seglog} {words}" for words in (f"read {branch} --limit 3", f"points {topic}", "cost"))
    yield DemoStep(
        f"All of it is in {directory}. Look around:\n\n{tries}\n\nThen `seglog --help`, with a log of yours."
    )


def _make_empty(directory: Path) -> None:
    """Make the directory, or remove what an earlier demo left. Raises `Conflict`, `Misuse`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise Misuse(f"{directory} is no directory") from None
    mark = directory / _MARK
    if any(directory.iterdir()) and not mark.exists():
        raise directory_not_empty(directory, hint="take a new directory for the demo with --directory")
    mark.touch()
    for name in ("data", "archive"):
        shutil.rmtree(directory / name, ignore_errors=True)


def _access_log() -> bytes:
    """Return made-up lines of a web server's log, the same each time."""
    chance = random.Random(17)
    pages = ("/", "/cart", "/orders", "/login", "/search?q=log", "/static/app.js")
    lines = []
    for second in range(_LINES):
        moment = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(1_790_000_000 + second))
        address = ".".join(str(chance.randrange(1, 255)) for _ in range(4))
        size = chance.randrange(200, 90_000)
        lines.append(f'{address} - - [{moment}] "GET {chance.choice(pages)} HTTP/1.1" 200 {size}\n')
    return "".join(lines).encode()


def _run(command: str) -> bytes:
    """Run a command of `seglog` without settings of the environment, and return its output. Raises `OffloadError`."""
    variables = {name: text for name, text in os.environ.items() if not name.startswith("SEGLOG_")}
    return _output(command, [sys.executable, "-P", "-m", "offload", *shlex.split(command)[1:]], variables)


def _in_spark(url: str, lsn: int, note: Callable[[str], None]) -> DemoStep:
    home = os.environ.get("JAVA_HOME")
    if find_spec("pyspark") is None or not shutil.which(f"{home}/bin/java" if home else "java"):
        return DemoStep("9. Spark reads the archive, too: pip install 'seglog[spark]', and Java 17 or newer.")
    note("seglog: starting Spark, which counts both states in the archive. That takes up to a minute")
    program = _PROGRAM.format(topic=_TOPIC, url=url, lsn=lsn)
    variables = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **os.environ}
    output = _output("python", [sys.executable, "-P", "-c", program], variables)
    shown = program.rstrip().replace("\n", "\n  >>> ")
    return DemoStep("9. Spark, straight from the archive, without a server.", f"python\n  >>> {shown}", output.decode())


def _output(shown: str, words: list[str], variables: dict[str, str]) -> bytes:
    done = subprocess.run(words, env=variables, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        raise _failed(shown, (done.stderr.decode(errors="replace").strip().splitlines() or ["no output"])[-1])
    return done.stdout


def _failed(command: str, reason: str) -> OffloadError:
    hint = "`seglog doctor` examines this machine, and with --spark its Spark"
    return OffloadError(f"the demo ended at `{command}`: {reason}", hint=hint)
