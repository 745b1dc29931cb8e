"""Every command that a daemon serves runs with `--daemon` from a directory without data, over TLS with a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import seglog
from offload.cli.command_line import LOCAL
from offload.operations.command import COMMANDS as SERVED_COMMANDS
from offload.operations.command_list import COMMANDS
from tests.certificates import certificate
from tests.daemons import ServedDirectory, served
from tests.golden.make_modules import SERVED
from tests.worlds.command import Done, Run

TOKEN = "correct-horse-battery-staple"


@dataclass
class Away:
    """A daemon of another directory, and the options that lead to it."""

    daemon: ServedDirectory
    remote: Path
    run: Run

    @property
    def url(self) -> str:
        return f"https://localhost:{self.daemon.port}"

    def __call__(self, *words: str, stdin: bytes = b"") -> Done:
        return self.run("--daemon", self.url, "--token-file", "token", *words, stdin=stdin, directory=None)


@pytest.fixture
def away(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Away]:
    """The command runs in `tmp_path`, which has a token and a file of lines."""
    there = tmp_path.parent / f"{tmp_path.name}-there"
    seglog.open(there / "data").close()
    public, key = certificate(there)
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    (tmp_path / "lines").write_bytes(b"one\ntwo\nthree\n")
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    remote = there / "remote"
    variables = {"SERVE_TLS_CERTIFICATE": public, "SERVE_TLS_KEY": key, "SERVE_TOKEN_FILE": token}
    with served(there / "data", remote.as_uri(), **{name: str(text) for name, text in variables.items()}) as daemon:
        yield Away(daemon, remote, run)


@pytest.mark.long
def test_every_served_command_runs_on_another_machine(away: Away, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    for words in SERVED:
        pin = "".join(each.name for each in away.remote.glob("pins/*/*"))
        plan = "".join(str(2**64 - 1 - int(each.parent.name, 16)) for each in away.remote.glob("gc/*/plan"))
        done = away(*words.format(pin=pin, plan=plan).split())
        assert done.code == 0, (words, done)
    assert sorted(tmp_path.iterdir()) == before


def test_files_are_read_and_written_on_the_callers_machine(away: Away, tmp_path: Path) -> None:
    assert away("append", "t", "lines").text.startswith("appended 3 records to t, seq 1 to 3")
    assert away("append", "t", stdin=b"four").code == 0
    assert away("read", "t").out == b"one\ntwo\nthree\nfour"
    assert away("export", "t", "out").code == 0
    assert [*(tmp_path / "out").iterdir()]
    found = away("bisect", "t", "--good", "head~0", "run", "true")
    assert found.code in (2, 3, 4), found  # the states of a topic without commits are the daemon's to tell
    assert "--daemon" not in found.err


@pytest.mark.parametrize(
    "words", ["demo", "init", "recover file:///x d", "serve", "verify", "inspect x", "doctor", "follow file:///x d"]
)
def test_a_command_for_files_here_is_refused_by_its_name(run: Run, tmp_path: Path, words: str) -> None:
    done = run("--daemon", "https://localhost:1", *words.split(), directory=None)
    assert done.code == 2, done
    assert done.err.startswith(f"seglog: {words.split()[0]} works on files of this machine")
    assert [*tmp_path.iterdir()] == []


def test_each_command_is_served_or_refused_or_needs_no_directory() -> None:
    through_others = {"append", "bisect", "export"}
    of_tenants = {"tenant/policy", "tenant/bucket-policy", "tenant/check", "tenant/credentials", "tenant/list"}
    assert {*SERVED_COMMANDS, *through_others, *LOCAL, "completion", "help", "version", "token/new", *of_tenants} == {
        *COMMANDS
    }


def test_a_missing_or_wrong_token_is_refused(away: Away, tmp_path: Path) -> None:
    assert "token" in away.run("--daemon", away.url, "topic", "list", directory=None).err
    (tmp_path / "token").write_text("wrong" * 5)
    assert away("topic", "list").code == 2
    missing = away.run("--daemon", away.url, "--token-file", "nothing", "topic", "list", directory=None)
    assert (missing.code, "nothing does not exist" in missing.err) == (3, True)


def test_a_certificate_that_is_not_trusted_ends_the_command(away: Away, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    done = away("topic", "list")
    assert done.code == 1
    assert f"the daemon at {away.url} did not answer" in done.err


def test_the_environment_names_the_daemon(away: Away, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGLOG_DAEMON", away.url)
    monkeypatch.setenv("SEGLOG_TOKEN_FILE", "token")
    assert away.run("append", "t", "lines", directory=None).code == 0
    assert away.run("read", "t", "--limit", "1", directory=None).out == b"one\n"
    assert away.run("--daemon", "nonsense", "read", "t", directory=None).code == 2
