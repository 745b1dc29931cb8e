"""Test that each object of `--json` is as docs/schema says, for every command, and each error too."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest

from catalog.format.ids import from_cbe64
from offload.cli.commands import listed_commands
from offload.cli.parser import request_of
from offload.operations.command import schemas
from offload.operations.result_json import kind_of, schema_of
from tests.golden.make_modules import SERVED
from tests.schemas import SCHEMAS, mismatches
from tests.worlds.command import Done, Run

OTHERS = (
    "append t lines",
    "restore t --to head --as gone",
    "branch delete t gone --dry-run",
    "delete t --before 2 --dry-run",
    "offload t --dry-run",
    "gc --dry-run",
    "status",
    "log t --graph",
    "diff t t@former --records",
    "verify",
    "verify --remote",
    "export t exported",
    "export t exported --verify",
    "doctor",
    "token new ci --role append --topics app-*",
    "tenant list",
    "tenant policy acme --role writer --bucket archive",
    "tenant bucket-policy archive",
    "--remote {remote}/acme tenant delete acme --dry-run",
    "--remote {remote}/acme tenant delete acme --yes",
    "inspect data/seglog.toml",
    "recover {remote} recovered",
    "follow {remote} standby --once",
    "follow {remote} standby --once",
    "-C third init --from {remote}",
)
SILENT = {
    "append",
    "bisect",
    "demo",
    "init",
    "serve",
    "completion",
    "help",
    "version",
    "tenant/check",
    "tenant/credentials",
}
"""Commands of the list that tests run in another way, or that print no results."""


def _check(done: Done, words: str) -> set[str]:
    """Check each object against the schema of its kind, and return the kinds."""
    kinds = set()
    for line in done.out.splitlines():
        value = json.loads(line)
        assert list(value)[:2] == ["schema", "kind"], (words, value)
        assert mismatches(value, SCHEMAS[value["kind"]]) == [], (words, value)
        kinds.add(value["kind"])
    return kinds


def test_the_output_of_every_command_is_as_its_schema_says(run: Run, tmp_path: Path) -> None:
    remote = (tmp_path / "remote").as_uri()
    (tmp_path / "lines").write_bytes(b"a\nb\nc\n")
    kinds = _check(run("--json", "init", "--remote", remote), "init")
    paths = {"append", "init"}
    for words in [*SERVED, *OTHERS]:
        pin = "".join(path.name for path in (tmp_path / "remote").glob("pins/*/*"))
        plan = "".join(str(from_cbe64(path.parent.name)) for path in (tmp_path / "remote").glob("gc/*/plan"))
        arguments = words.replace("{remote}", remote).replace("{pin}", pin).replace("{plan}", plan).split()
        paths.add(request_of(arguments, {}).path)
        done = run("--json", *arguments)
        assert done.code == 0 or words.startswith(("inspect", "retry")), (words, done.err)
        kinds |= _check(done, words)
    assert {each.path for each in listed_commands()} - paths <= SILENT
    assert {
        *("directory_made", "appended", "record", "commit_listed", "would_take", "records_deleted", "resolved"),
        *(
            "branch_deleted",
            "pin_listed",
            "graphed_commit",
            "topic_gone",
            "file_checked",
            "remote_checked",
            "recovered",
            "topic_followed",
            "looked",
            "check_done",
        ),
    } <= kinds


@pytest.mark.parametrize(
    ("words", "error", "code"),
    [
        ("--json read nope", "NoSuchTopic", 3),
        ("read nope --json", "NoSuchTopic", 3),
        ("delete t --before 2 --json", "Misuse", 2),
        ("frobnicate --json", "UsageError", 2),
        ("--json", "UsageError", 2),
        ("branch --json", "UsageError", 2),
        ("read --nope --json", "UsageError", 2),
        ("append t missing --json", "Missing", 3),
        ("inspect missing --json", "Missing", 3),
    ],
)
def test_an_error_is_one_object_on_standard_error(run: Run, words: str, error: str, code: int) -> None:
    assert run("init").code == 0
    done = run(*words.split())
    assert (done.code, done.out, done.err.count("\n")) == (code, b"", 1)
    said = json.loads(done.err)
    assert mismatches(said, SCHEMAS["error"]) == []
    assert (said["error"], said["exit_code"], bool(said["message"])) == (error, code, True)


def test_an_error_of_words_without_json_is_a_line(run: Run) -> None:
    assert run("frobnicate").err.startswith("seglog: there is no command frobnicate")
    assert run("frobnicate", "--", "--json").err.startswith("seglog: ")


def test_a_reader_of_errors_that_goes_away_changes_no_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "offload", "-C", str(tmp_path / "none"), "read", "t"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as done:
        assert done.stderr is not None
        done.stderr.close()
        assert done.wait(60) == 3


def test_the_schemas_of_the_page_are_those_of_the_code() -> None:
    assert schemas() == SCHEMAS


def test_a_result_has_no_key_of_its_own_that_every_object_has() -> None:
    kind: Any = make_dataclass("Odd", [("kind", str)], frozen=True)
    assert kind_of(kind) == "odd"
    with pytest.raises(ValueError, match="not free"):
        schema_of(kind)


def test_the_check_refuses_what_does_not_fit() -> None:
    schema: Mapping[str, Any] = SCHEMAS["records_deleted"]
    fit = {"schema": 1, "kind": "records_deleted", "topic": "t", "deleted": None, "lsn": 7}
    assert mismatches(fit, dict(schema)) == []
    for wrong in ({"schema": 2}, {"kind": "x"}, {"topic": 7}, {"deleted": "1"}, {"lsn": True}, {"more": 1}):
        assert mismatches({**fit, **wrong}, dict(schema)), wrong
    assert mismatches({key: fit[key] for key in fit if key != "lsn"}, dict(schema))
