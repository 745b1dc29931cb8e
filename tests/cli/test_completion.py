"""Test the words that a shell offers, and the script of each shell."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import seglog
from offload.cli.command_line import run as front_door
from offload.cli.completion import candidates
from offload.cli.shells import SHELLS, script
from tests.daemons import served
from tests.worlds.command import Run

ROOT = Path(__file__).resolve().parents[2]


def words(*typed: str, directory: Path | str = "nowhere") -> list[str]:
    found = candidates(typed, {"SEGLOG_DIR": str(directory)})
    assert found is not None
    return [word for word, _ in found]


@pytest.fixture
def data(run: Run, tmp_path: Path) -> Path:
    """A data directory with the topics `notes` and `orders`, and the branch `orders@fix`."""
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    assert run("append", "notes", stdin=b"a\n").code == 0
    for step in ("append orders", "seal orders", "offload orders", "branch create orders fix", "append orders@fix"):
        assert run(*step.split(), stdin=b"a\nb\n").code == 0
    return tmp_path / "data"


# ---------------------------------------------------------------- commands and options


def test_commands_and_groups_complete() -> None:
    assert words("re") == ["read", "reset", "resume", "retry", "resolve", "restore", "recover"]
    assert words("help", "re") == words("re")
    assert words("ca") == ["cat"]
    assert words("cat", "t", "--f") == words("read", "t", "--f")
    assert words("topic", "") == ["create", "set", "show", "delete", "list"]
    assert "branch" in words("")
    assert words("nonsense", "") == []


def test_options_of_the_command_complete() -> None:
    assert words("read", "t", "--f") == ["--from", "--fixed", "--follow"]
    assert words("--re") == ["--remote"]
    assert words("topic", "list", "--") == ["--json", "--strict-time", "--plain", "--verbose", "--no-pager", "--help"]
    assert words("read", "--", "--f") == []


def test_the_values_of_a_choice_complete_and_no_others() -> None:
    assert words("append", "t", "--format", "") == ["lines", "jsonl"]
    assert words("append", "t", "--format=l") == ["--format=lines"]
    assert words("completion", "") == list(SHELLS)
    assert words("read", "t", "--from", "") == []
    assert words("read", "t", "u", "") == []
    assert words("append", "t", "-", "") == []
    assert words("-C", "read", "to") == ["token", "topic"]
    assert words("read", "t", "--tag=a", "--branch", "m", directory="nowhere") == ["main"]


@pytest.mark.parametrize("typed", [("append", "t", ""), ("-C", "da"), ("recover", "file:///a", ""), ("--dir=da",)])
def test_the_shell_completes_files_itself(typed: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert candidates(typed, {}) is None
    assert front_door(["__complete", *typed], {}, lambda *_, **__: None) == 1
    assert capsys.readouterr().out == ""


def test_the_command_prints_them_with_their_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert front_door(["__complete", "topic", "li"], {}, lambda *_, **__: None) == 0
    assert capsys.readouterr().out == "list\tList the topics of this directory.\n"


# ---------------------------------------------------------------- names


def test_topics_complete_from_the_log_and_the_catalog(data: Path) -> None:
    assert words("read", "", directory=data) == ["notes", "orders", "orders@fix"]
    assert words("read", "orders@", directory=data) == ["orders@fix", "orders@main"]
    assert words("topic", "show", "o", directory=data) == ["orders"]
    for option in (("-C", str(data)), (f"-C{data}",), ("--dir", str(data)), (f"--dir={data}",)):
        assert words(*option, "status", "n") == ["notes"]
    assert words("append", "n", directory=data) == ["notes"]


def test_branches_complete(data: Path) -> None:
    assert words("branch", "delete", "orders", "", directory=data) == ["fix", "main"]
    assert words("read", "orders", "--branch", "f", directory=data) == ["fix"]
    assert words("read", "orders", "--branch=f", directory=data) == ["--branch=fix"]
    assert words("branch", "create", "orders", "", directory=data) == []


def test_tags_complete(data: Path, run: Run) -> None:
    for name in ("v1", "v2", "w"):
        assert run("tag", "create", "orders", name, "--at", "seq:1").code == 0
    assert run("tag", "delete", "orders", "w").code == 0
    assert words("tag", "delete", "orders", "", directory=data) == ["v1", "v2"]
    assert words("tag", "delete", "notes", "", directory=data) == []
    assert words("restore", "orders", "--to", "", directory=data) == ["head", "head~1", "tag:v1", "tag:v2"]
    assert words("restore", "orders@fix", "--to=tag:", directory=data) == ["--to=tag:v1", "--to=tag:v2"]
    assert words("diff", "orders:tag:v2", directory=data) == ["orders:tag:v2"]
    assert words("diff", "orders@fix:h", directory=data) == ["orders@fix:head", "orders@fix:head~1"]
    assert run("undo").code == 0  # of the last change, which is the deletion
    assert words("tag", "delete", "orders", "w", directory=data) == ["w"]


def test_a_replica_knows_the_tags_of_others_after_a_fetch(data: Path, run: Run, tmp_path: Path) -> None:
    assert run("tag", "create", "orders", "v1").code == 0
    assert run("init", "--remote", (tmp_path / "remote").as_uri(), directory="other").code == 0
    assert run("sync", "orders", "--fetch", directory="other").code == 0
    assert words("tag", "delete", "orders", "", directory=tmp_path / "other") == ["v1"]
    assert run("tag", "delete", "orders", "v1").code == 0
    assert run("sync", "orders", "--fetch", directory="other").code == 0
    assert words("tag", "delete", "orders", "", directory=tmp_path / "other") == []


def test_names_complete_beside_a_daemon(data: Path, tmp_path: Path) -> None:
    with served(data, (tmp_path / "remote").as_uri()) as daemon:
        assert daemon.call("branch/create", topic="orders", name="new")[0]["branch"] == "orders@new"
        daemon.append("orders@new", b"c")
        assert "orders@new" in words("read", "orders@", directory=data)


def test_a_completion_changes_no_file(data: Path) -> None:
    def state() -> dict[str, str]:
        files = [path for path in data.rglob("*") if path.is_file()]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    before = state()
    assert words("read", "o", directory=data) == ["orders", "orders@fix"]
    assert state() == before


def test_damaged_files_give_no_names(data: Path, tmp_path: Path) -> None:
    (data / "catalog.db").write_bytes(b"none" * 1000)
    for path in (data / "meta").glob("snapshot.*"):
        path.write_text('{"topics": 7}\n')
    assert words("read", "", directory=data) == []
    assert words("branch", "delete", "orders", "", directory=data) == ["main"]
    assert words("read", "", directory=tmp_path / "nowhere") == []


def test_a_log_without_a_remote_completes_too(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "a log?#%") as log:
        log.topic("t").append([b"a"])
    assert words("read", "", directory=tmp_path / "a log?#%") == ["t"]


# ---------------------------------------------------------------- shells


def test_each_script_is_printed(run: Run) -> None:
    for shell in SHELLS:
        assert run("completion", shell).text == script(shell)
    assert run("completion", "csh").code == 2


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_is_valid(shell: str, tmp_path: Path) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(script(shell))
    done = subprocess.run([found, "-n", str(tmp_path / "script")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_each_script_keeps_to_the_protocol() -> None:
    """Each asks for words, takes the part before the tab, and completes files if that fails."""
    for shell in SHELLS:
        assert "__complete" in script(shell)
    assert "string join -- " in script("fish")  # a word may begin with a dash
    assert all("$'\\t'" in script(shell) for shell in ("bash", "zsh"))
    for shell, files in (("bash", "compopt -o default"), ("zsh", "_files"), ("fish", "__fish_complete_path")):
        assert files in script(shell)


@pytest.fixture
def in_shell(data: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds the command and the data directory."""
    command = tmp_path / "seglog"
    command.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m offload \"$@\"\n")
    command.chmod(0o755)
    (tmp_path / "file").write_text("")
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SEGLOG_DIR": str(data), "PYTHONPATH": str(ROOT)}


_TYPED = {
    "seglog topic li": ["list"],
    "seglog read o": ["orders", "orders@fix"],
    "seglog read orders@f": ["orders@fix"],
    "seglog read --fi": ["--fixed"],
    "seglog read orders --branch=f": ["--branch=fix"],
    "seglog diff orders:h": ["orders:head", "orders:head~1"],
    "seglog read orders extra ": [],
    "seglog append orders fi": ["file"],
    "seglog --dir=fi": ["--dir=file"],
}


def test_fish_completes(in_shell: dict[str, str], tmp_path: Path) -> None:
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("fish is not installed")
    asked = "\n".join(f"echo {line!r}; complete --do-complete={line!r}" for line in _TYPED)
    done = subprocess.run(
        [fish, "-c", f"{script('fish')}\n{asked}"],
        env={**in_shell, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert _by_line(done.stdout) == _TYPED


_ZSH_AROUND = r"""
compdef() { : }
compset() { [[ ${words[CURRENT]} == --*=* ]] && before=${words[CURRENT]%%=*}= }
_describe() { for each in "${(@P)3}"; do print -r -- "$before${${each//\\:/,}%%:*}"; done }
_files() { for each in ${words[CURRENT]#"$before"}*(N); do print -r -- "$before$each"; done }
"""


def test_zsh_completes(in_shell: dict[str, str], tmp_path: Path) -> None:
    """The functions of zsh's completion system are stand-ins, which print what they get."""
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("zsh is not installed")
    asked = "\n".join(
        f"print -r -- {line!r}; before=; words=({' '.join(line.split(' ')[:-1])} '{line.split(' ')[-1]}')"
        "; CURRENT=$#words; _seglog"
        for line in _TYPED
    )
    done = subprocess.run(
        [zsh, "-f", "-c", f"{_ZSH_AROUND}\n{script('zsh')}\n{asked}"],
        env=in_shell,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    expected = {line: [word.replace(":", ",") for word in found] for line, found in _TYPED.items()}
    assert _by_line(done.stdout) == expected


def _by_line(printed: str) -> dict[str, list[str]]:
    """Return the words that a shell offers, by the line that it printed before them."""
    found: dict[str, list[str]] = {}
    for line in printed.splitlines():
        if line in _TYPED:
            words = found[line] = []
        else:
            words.append(line.partition("\t")[0])
    return found


def test_bash_replaces_only_the_piece_behind_its_last_word_break(in_shell: dict[str, str]) -> None:
    lines = {
        "seglog re": ("re", "read reset resume retry resolve restore recover"),
        "seglog read ": ("", "notes orders orders@fix"),
        "seglog read orders@f": ("f", "fix"),
        "seglog read orders@": ("@", "fix main"),
        "seglog read orders --branch=f": ("f", "fix"),
        "seglog restore orders --to head": ("head", "head head~1"),
    }
    text = script("bash") + '_seglog_asked() { _seglog; echo "${COMPREPLY[*]}"; }\n'
    asked = "\n".join(
        f'COMP_LINE="{line}"; COMP_POINT={len(line)}; COMP_WORDS=("{piece}"); COMP_CWORD=0; _seglog_asked'
        for line, (piece, _) in lines.items()
    )
    done = subprocess.run(["bash", "-c", f"{text}{asked}\n"], env=in_shell, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [expected for _, expected in lines.values()]
