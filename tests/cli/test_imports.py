"""Test that a command imports only the packages it needs: boto3 and obstore alone take a quarter of a second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.make_modules import GOLDEN, make

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
    found = "\n".join(make(tmp_path)) + "\n"
    assert found == GOLDEN.read_text()
    assert not {line.strip() for line in found.splitlines()} & {"catalog", "numpy", "typer"}
