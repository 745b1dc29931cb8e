"""Test that a command imports only the packages it needs: boto3 and obstore alone take a quarter of a second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from offload.cli.words import request_of
from offload.operations.command import COMMANDS
from tests.golden.make_modules import GOLDEN, SERVED, make
from tests.worlds.command import Run

MOST_MODULES = {
    "topic list": 155, "topic show t": 155, "read t --limit 1": 160, "tail t": 155, "status": 182, "pin list t": 172,
    "branch list t": 174, "tag list t": 173, "log t": 199, "show t head": 199, "points t": 199, "oplog": 194,
}  # fmt: skip
"""How many modules of ours a look may import: each costs as much as a fortieth of a Python that does nothing."""
LOCAL = ("topic list", "topic show t", "read t --limit 1", "pin list t")
"""The looks that decode no object and no array: they import none of `SLOW`."""
SLOW = {"concurrent.futures", "google.protobuf.message", "logging", "numpy", "pyroaring", "socket", "zstandard"}
CHANGING = {"numpy", "catalog.gc.collector", "offload.replication.reset", "offload.write.offloader"}
OURS = {"catalog", "offload", "seglog"}
HEAVY = "{'boto3', 'botocore', 'obstore', 'pyarrow', 'pyspark'}"


@pytest.mark.parametrize("arguments", [["--help"], ["read", "--help"], ["offload", "--help"]])
def test_help_imports_no_client_of_a_store(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom offload.main import main\n"
        f"sys.argv = ['seglog', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('imported:', *sorted({HEAVY} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert done.stdout.splitlines()[-1] == "imported:"


def test_a_directory_as_remote_needs_none_either() -> None:
    code = (
        "import sys\nfrom offload.wiring import open_store\nopen_store('file:///nowhere/at/all')\n"
        f"print(*sorted({HEAVY} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


@pytest.mark.long
def test_the_modules_of_each_command_are_the_golden_ones(tmp_path: Path) -> None:
    """`python -m tests.golden.make_modules` writes them."""
    assert "\n".join(make(tmp_path)) + "\n" == GOLDEN.read_text()


def test_no_command_that_the_front_door_or_a_daemon_serves_imports_numpy_or_the_catalog() -> None:
    assert {request_of(words.replace("{plan}", "1").split(), {}).path for words in SERVED} == {*COMMANDS, "append"}
    served = GOLDEN.read_text().partition("in its own process: ")[0]
    assert "numpy" not in served
    assert "  catalog" not in served
    assert "  rich" not in served


def test_a_look_at_the_catalog_imports_nothing_that_changes_it(run: Run, tmp_path: Path) -> None:
    """Nor numpy: its import takes a quarter of the CPU of such a command, or of a read of a few records."""
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    for line in ("append t", "seal t", "offload t", "append t", "append u", "seal u", "offload u --drop-hot"):
        assert run(*line.split(), stdin=b"a\nb\n").code == 0
    looks = ["log t", "status", "branch list t", "tag list t", "oplog"]
    looks += ["read t --limit 1", "read t --from 3 --to 4", "read u --limit 1"]
    code = (
        "import os, sys\nfrom offload.main import main\n"
        f"for words in {looks!r}:\n"
        "    if os.fork():\n        assert os.wait()[1] == 0, words\n        continue\n"
        "    sys.argv = ['seglog', '-C', 'data', *words.split()]\n"
        "    try:\n        main()\n    except SystemExit as end:\n        assert not end.code, words\n"
        f"    print('imported by', words + ':', *sorted({CHANGING} & set(sys.modules)), flush=True)\n"
        "    os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    told = [line for line in done.stdout.splitlines() if line.startswith("imported by")]
    assert told == [f"imported by {words}:" for words in looks]


def test_a_look_imports_few_modules(run: Run, tmp_path: Path) -> None:
    """Nearly all of its CPU goes into imports, so their number is what a look costs."""
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    for line in ("append t", "seal t", "offload t", "branch create t b --at lsn:1", "tag create t v1"):
        assert run(*line.split(), stdin=b"a\nb\n").code == 0
    code = (
        "import os, sys\nfrom offload.main import main\n"
        f"for words in {[*MOST_MODULES]!r}:\n"
        "    if os.fork():\n        assert os.wait()[1] == 0, words\n        continue\n"
        "    sys.argv = ['seglog', '-C', 'data', *words.split()]\n"
        "    try:\n        main()\n    except SystemExit as end:\n        assert not end.code, words\n"
        "    print('imported by:', words, *sorted(sys.modules), sep='|', flush=True)\n"
        "    os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    lines = [line.split("|")[1:] for line in done.stdout.splitlines() if line.startswith("imported by:")]
    ours = {words: sum(name.partition(".")[0] in OURS for name in names) for words, *names in lines}
    assert {words: count for words, count in ours.items() if count > MOST_MODULES[words]} == {}
    assert ours.keys() == MOST_MODULES.keys()
    assert {words: SLOW & {*names} for words, *names in lines if words in LOCAL and SLOW & {*names}} == {}
