"""Test that a command imports only the packages it needs: boto3 and obstore alone take a quarter of a second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from offload.cli.words import request_of
from offload.commands.registry import COMMANDS
from tests.golden.make_modules import GOLDEN, SERVED, make

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


def test_the_modules_of_each_command_are_the_golden_ones(tmp_path: Path) -> None:
    """`python -m tests.golden.make_modules` writes them."""
    assert "\n".join(make(tmp_path)) + "\n" == GOLDEN.read_text()


def test_no_command_that_the_front_door_or_a_daemon_serves_imports_numpy_or_the_catalog() -> None:
    assert {request_of(words.replace("{plan}", "1").split(), {}).path for words in SERVED} == {*COMMANDS, "append"}
    served = GOLDEN.read_text().partition("in its own process: ")[0]
    assert "numpy" not in served
    assert "  catalog" not in served
    assert "  rich" not in served
