"""Writes the golden list of the modules that commands import: `python -m tests.golden.make_modules`.

A command that the front door answers, or that a daemon serves, is listed with its modules of ours and with the packages
of others. A command that runs in its own process is listed with the packages of others. Modules of Python itself differ
between its versions. `{pin}` in a command stands for the only pin of the remote,
and `{plan}` for the only plan of GC.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.daemons import served

__all__ = ["ALONE", "GOLDEN", "LOCAL", "SERVED", "make"]

GOLDEN = Path(__file__).parent / "modules.txt"
ALONE = ("--version", "--help", "read --help", "completion bash", "__complete re", "__complete read t")
LOCAL = ("init", "append t lines", "offload t")
SERVED = (
    "topic create u",
    "topic set u --ttl 30d",
    "topic show u",
    "topic list",
    "topic delete u --yes",
    "append t lines",
    "seal t",
    "offload t",
    "append t lines",
    "seal t",
    "sync t --push",
    "status --runs",
    "read t",
    "tail t",
    "log t",
    "show t head",
    "segments t",
    "points t",
    "resolve t --to head --pin 1h",
    "pin list t",
    "pin refresh {pin} --for 2h",
    "pin release {pin}",
    "pause t",
    "resume t",
    "retry t",
    "restore t --to head~1 --as back",
    "copy t copied",
    "branch create t b",
    "branch list t",
    "branch diff t t@b",
    "diff t:head t@b",
    "branch rename t b c",
    "branch delete t c --yes",
    "branch undelete t c",
    "tag create t v1",
    "tag list t",
    "tag delete t v1",
    "cursor create t c",
    "cursor list t",
    "cursor reset t c head",
    "cursor delete t c",
    "queue create t q --dead-letter l",
    "queue list t",
    "queue show t q",
    "queue set t q --lease 1m",
    "queue redrive t q",
    "queue delete t q",
    "router create r --from t --to copies",
    "router list",
    "router pause r",
    "router resume r",
    "router delete r",
    "oplog",
    "undo",
    "append t lines",
    "delete t --from 3 --yes",
    "undo t",
    "delete t --before 2 --yes",
    "evict t --before 3 --yes",
    "truncate t --from 4 --yes",
    "compact t",
    "upgrade --yes",
    "gc",
    "cost",
    "gc plan --retain 0",
    "gc apply {plan} --retain 0 --grace 0",
    "gc explain refs/t/main",
    "uploads",
    "topic delete t --detach --yes",
    "sync t",
    "sync t --fetch",
    "reset t",
    "takeover t",
    "branch promote t c --keep former",
)

_OURS = {"catalog", "offload", "seglog"}
_RUN = """
import glob, json, os, sys

before = set(sys.modules)
from offload.main import main

said = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
for words in json.load(sys.stdin):
    child = os.fork()
    if not child:
        pin = "".join(map(os.path.basename, glob.glob("../*-served/pins/*/*")))
        plan = "".join(str(2**64 - 1 - int(each.split("/")[-2], 16)) for each in glob.glob("../*-served/gc/*/plan"))
        sys.argv = ["seglog", *words.replace("{pin}", pin).replace("{plan}", plan).split()]
        try:
            main()
        except SystemExit as end:
            os.write(said, json.dumps([words, end.code, sorted({*sys.modules} - before)]).encode() + b"\\n")
        os._exit(0)
    os.waitpid(child, 0)
"""


def make(directory: Path) -> Iterator[str]:
    """Yield the lines of the golden file. `directory` is empty."""
    remote = (directory / "remote").as_uri()
    for name in ("own", "served"):
        (directory / name).mkdir()
        (directory / name / "lines").write_bytes(b"a\nb\nc\n")
    _run(directory / "served", [f"init --remote {remote}-served"])
    yield from _sections("without any other part", _run(directory / "own", ALONE))
    with served(directory / "served", f"{remote}-served"):
        found = _run(directory / "served", SERVED)
    shared = set.intersection(*(modules for _, modules in found))
    yield from _sections("served by a daemon", [("each command", shared)])
    yield from _sections("served by a daemon, also", [(words, modules - shared) for words, modules in found])
    local = _run(directory / "own", LOCAL, f"{remote}-own")
    packages = [(words, {each for each in modules if not _is_ours(each)}) for words, modules in local]
    yield from _sections("in its own process", packages)


def _sections(title: str, found: Iterable[tuple[str, set[str]]]) -> Iterator[str]:
    """Yield a section for each set of modules, with the commands that import just these."""
    by_modules: dict[tuple[str, ...], dict[str, None]] = {}
    for words, modules in found:
        by_modules.setdefault(tuple(sorted(modules)), {})[words] = None
    for names, commands in by_modules.items():
        yield f"{title}: {'; '.join(commands)}"
        yield from (f"  {each}" for each in names)


def _run(directory: Path, commands: Sequence[str], remote: str = "") -> list[tuple[str, set[str]]]:
    """Run commands one after the other, and return the modules that each one imports."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN],
        input=json.dumps(commands), cwd=directory, capture_output=True, text=True, check=True,
        env={"SEGLOG_REMOTE": remote, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(words, code) for words, code, _ in told] == [(words, 0) for words in commands], done.stderr
    return [(words, set(_packages(modules))) for words, _, modules in told]


def _packages(modules: Iterable[str]) -> Iterator[str]:
    """Yield the modules of ours, and the packages of others."""
    for module in modules:
        package = module.partition(".")[0]
        if _is_ours(module):
            yield module
        elif package not in sys.stdlib_module_names and "cython" not in package:
            yield package


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in _OURS


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        GOLDEN.write_text("\n".join(make(Path(name))) + "\n")
