"""The main job on real input, narrated: `make demo` runs it on a `file://` remote.

    python -m demo DIRECTORY [FILE]

Everything is done by the `seglog` command as a user would type it; only the comparison and Spark are Python.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

_CANDIDATES = ("/var/log/dpkg.log", "/var/log/syslog", "/var/log/messages", "/var/log/apt/history.log")
_LEAST_BYTES = 10_000
_TOPIC = "events"
_BRANCH = "before-the-mistake"


class Demo:
    """One run. `command` prints each line that a user would type before it runs it."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.archive = directory / "archive"
        self.url = f"file://{self.archive.resolve()}"
        self.seglog = [sys.executable, "-m", "offload", "-C", str(self.data)]

    def command(self, *arguments: str, show: bool = True) -> bytes:
        shown = " ".join(["seglog", "-C", str(self.data), *arguments])
        if show:
            print(f"\n  $ {shown}")
        done = subprocess.run([*self.seglog, *arguments], capture_output=True, check=False)
        if done.returncode != 0:
            sys.exit(f"demo: `{shown}` failed:\n{done.stderr.decode()}")
        if show:
            for line in done.stdout.decode(errors="replace").splitlines():
                print(f"    {line}")
        return done.stdout


def main() -> None:
    directory = Path(sys.argv[1])
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    text, origin = _input(directory, Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    lines = text.read_bytes().count(b"\n")
    demo = Demo(directory)

    _say(f"1. A log in {demo.data}, its archive in {demo.archive}. The text is {origin}: {lines:,} lines.")
    demo.command("init", "--remote", demo.url)
    _small_segments(demo.data)
    demo.command("append", _TOPIC, str(text))

    _say("2. Seal the last segment, send everything to the archive, and delete the local copy once it was read back.")
    demo.command("seal", _TOPIC)
    demo.command("offload", _TOPIC, "--drop-hot")
    demo.command("status", _TOPIC)

    _say("3. Read it again, now from the archive alone.")
    same = demo.command("read", _TOPIC, show=False) == text.read_bytes()
    print(f"\n  $ seglog -C {demo.data} read {_TOPIC} | cmp - {text}")
    print(f"    {'every byte is the same' if same else 'DIFFERENT'}")
    if not same:
        sys.exit("demo: what came back is not what went in")

    cut = lines // 2 + 1
    _say(f"4. A mistake: somebody deletes the first half, {cut - 1:,} records.")
    demo.command("delete", _TOPIC, "--before", str(cut), "--yes")
    demo.command("log", _TOPIC)

    _say("5. Nothing is lost: the state before the delete, back as a branch. No data is copied.")
    demo.command("restore", _TOPIC, "--to", "head~1", "--as", _BRANCH)
    demo.command("branch", "list", _TOPIC)

    _say("6. Both in Spark, straight from the archive: no seglog process is on the way.")
    _count_in_spark(demo.url)

    print(f"""
All of it is in {directory} for you to look into. Three things to try next:

  .venv/bin/seglog -C {demo.data} read {_TOPIC}@{_BRANCH} --limit 3
  .venv/bin/seglog -C {demo.data} --json log {_TOPIC}
  .venv/bin/seglog inspect {next(demo.archive.glob("*/segments/*.index"))}
""")


def _input(directory: Path, chosen: Path | None) -> tuple[Path, str]:
    """A real text: the one asked for, else a log of this machine, else access-log lines made up here."""
    if chosen is not None:
        if not chosen.is_file():
            sys.exit(f"demo: {chosen} is not a file; give one as FILE=path")
        return chosen, f"{chosen}, as you asked"
    for candidate in map(Path, _CANDIDATES):
        try:
            if candidate.stat().st_size >= _LEAST_BYTES:
                copy = directory / candidate.name  # the original may grow while we read
                shutil.copyfile(candidate, copy)
                return copy, f"this machine's {candidate}"
        except OSError:
            continue
    made = directory / "access.log"
    _make_access_log(made)
    return made, "made-up access-log lines, as no log of this machine is readable"


def _make_access_log(path: Path) -> None:
    chance = random.Random(17)
    pages = ("/", "/cart", "/orders", "/login", "/search?q=log", "/static/app.js")
    with path.open("w") as file:
        for second in range(20_000):
            moment = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(1_790_000_000 + second))
            address = ".".join(str(chance.randrange(1, 255)) for _ in range(4))
            size = chance.randrange(200, 90_000)
            file.write(f'{address} - - [{moment}] "GET {chance.choice(pages)} HTTP/1.1" 200 {size}\n')


def _small_segments(data: Path) -> None:
    """So that even a short text has several segments to look at."""
    settings = data / "seglog.toml"
    settings.write_text(settings.read_text().replace("# segment_max_events = 10000", "segment_max_events = 1000"))


def _count_in_spark(url: str) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    started = time.monotonic()
    command = [sys.executable, "-m", "demo.count", url, _TOPIC, "main", _BRANCH]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"demo: Spark failed:\n{done.stderr}")
    counts = done.stdout.split()
    print(f'\n  >>> spark.read.format("seglog").option("topic", "{_TOPIC}").load("{url}").count()')
    print(f"    {int(counts[0]):,}")
    print(
        f'\n  >>> spark.read.format("seglog").option("topic", "{_TOPIC}").option("branch", "{_BRANCH}").load(…).count()'
    )
    print(f"    {int(counts[1]):,}")
    print(f"\n  ({time.monotonic() - started:.0f} s, most of it Spark's start)")


def _say(text: str) -> None:
    print(f"\n{text}")


if __name__ == "__main__":
    main()
