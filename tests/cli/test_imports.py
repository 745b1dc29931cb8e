"""Test that a command imports only the packages it needs: boto3 and obstore alone take a quarter of a second."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from offload.cli.parser import request_of
from offload.operations.command import COMMANDS
from seglog import lazy_imports, open_engine
from seglog.base.lazy import LazyModule, import_without
from tests.golden.make_modules import GOLDEN, SERVED, make
from tests.worlds.command import Run

MOST_MODULES = {
    "topic list": 141, "topic show t": 141, "read t --limit 1": 144, "tail t": 140, "status": 168, "pin list t": 159,
    "branch list t": 161, "tag list t": 160, "log t": 175, "show t head": 181, "points t": 175, "oplog": 172,
}  # fmt: skip
"""How many modules of ours a look may import: each costs as much as a fortieth of a Python that does nothing."""
LOCAL = ("topic list", "topic show t", "read t --limit 1", "pin list t")
"""The looks that decode no object and no array: they import none of `SLOW`."""
SLOW = {"concurrent.futures", "google.protobuf.message", "logging", "numpy", "pyroaring", "socket", "zstandard"}
#: What a package of a look imports and no look uses. numpy, for `tail`, needs inspect.
RARE = {"calendar", "google.protobuf.internal.python_message", "inspect", "ipaddress", "tempfile"}
#: For reads at once: of chunks, and of small objects over a network. numpy imports them, too.
CONCURRENT = {"concurrent.futures", "logging"}
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
    assert {words: RARE & {*names} for words, *names in lines if words != "tail t" and RARE & {*names}} == {}
    concurrent = {words for words, *names in lines if CONCURRENT & {*names}}
    assert concurrent <= {"show t head", "tail t"}


def test_a_rare_module_is_imported_at_its_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rare_of_ours.py").write_text("value = 7\n")
    (tmp_path / "using_rare.py").write_text("import rare_of_ours\ndef value(): return rare_of_ours.value\n")
    monkeypatch.syspath_prepend(tmp_path)
    import_without("using_rare", "rare_of_ours")
    assert "rare_of_ours" not in sys.modules
    assert importlib.import_module("using_rare").value() == 7
    assert importlib.import_module("rare_of_ours").value == 7


def test_a_module_that_uses_the_rare_one_at_once_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needed_of_ours.py").write_text("value = 7\n")
    (tmp_path / "using_needed.py").write_text("import needed_of_ours\nvalue = needed_of_ours.value\n")
    monkeypatch.syspath_prepend(tmp_path)
    import_without("using_needed", "needed_of_ours")
    assert importlib.import_module("using_needed").value == 7


def test_the_first_stream_needs_no_file_descriptor(tmp_path: Path) -> None:
    code = (
        "import resource, seglog\n"
        f"log = seglog.open({str(tmp_path / 'data')!r})\n"
        "log.topic('t').append([b'one'])\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))\n"
        "print(log.topic('t').append_stream([b'two']).seqs)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "range(2, 3)\n", done.stderr


def test_a_log_that_is_opened_for_changes_has_imported_what_changes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    names = lazy_imports.__all__
    for name in names:
        monkeypatch.setattr(lazy_imports, name, LazyModule(getattr(lazy_imports, name).__name__))
    open_engine.import_now()
    assert {name for name in names if isinstance(getattr(lazy_imports, name), LazyModule)} == set()
