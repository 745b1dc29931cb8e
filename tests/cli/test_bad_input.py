"""Test bad input: one clear line on stderr, the documented exit code, no change."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.worlds.command import Done, Run


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    assert run("init", "--remote", f"file://{tmp_path}/archive").code == 0
    assert run("append", "t", stdin=b"a\nb\n").code == 0
    return run


def _refused(done: Done, code: int, *words: str) -> None:
    assert (done.code, done.out) == (code, b"")
    assert done.err.startswith("seglog: ")
    assert done.err.count("\n") == 1
    for word in words:
        assert word in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("read", "nope"), 3, ("no topic nope", "topic list")),
        (("seal", "nope"), 3, ("no topic nope",)),
        (("status", "nope"), 3, ("no topic nope",)),
        (("delete", "nope", "--before", "2", "--yes"), 3, ("no topic nope",)),
        (("offload", "nope"), 3, ("no topic nope",)),
        (("log", "nope"), 3, ("nope",)),
        (("branch", "list", "nope"), 3, ("nope",)),
        (("append", "../etc", "-"), 2, ("not a valid topic name",)),
        (("append", "t@", "-"), 2, ("not a valid",)),
        (("append", "t\n", "-"), 2, ("not a valid topic name",)),
        (("topic", "create", "a/b"), 2, ("not a valid topic name",)),
        (("topic", "create", "t"), 4, ("exists already",)),
        (("topic", "create", "z", "--codec", "lz4"), 2, ("lz4", "none, zstd")),
        (("topic", "create", "z", "--durability", "maybe"), 2, ("durability",)),
        (("read", "t", "--from", "9"), 3, ("seq 9", "1 to 2")),
        (("read", "t", "--from", "0"), 3, ("seq 0",)),
        (("read", "t", "--from", "-1"), 2, ("start", "-1", "whole number")),
        (("read", "t", "--to", "9223372036854775808"), 2, ("end", "whole number")),
        (("delete", "t", "--before", "-1", "--yes"), 2, ("before", "-1")),
        (("delete", "t", "--before", "99999999999999999999", "--yes"), 2, ("before", "whole number")),
        (("offload", "t", "--up-to", "-1"), 2, ("up_to", "-1")),
        (("topic", "set", "t", "--ttl", "999999999999999999d"), 2, ("ttl_ms",)),
        (("read", "t@nope"), 3, ("t@nope", "branch list")),
        (("append", "t@nope", "-"), 3, ("t@nope",)),
        (("restore", "t", "--to", "seq:99", "--as", "x"), 3, ("seq:99", "Restorable: ")),
        (("restore", "t", "--to", "lsn:99", "--as", "x"), 3, ("lsn:99", "Restorable: ")),
        (("restore", "t", "--to", "1999-01-01T00:00:00Z", "--as", "x"), 3, ("1999", "Restorable: ")),
        (("restore", "t", "--to", "yesterday-ish", "--as", "x"), 2, ("yesterday-ish", "seq:N")),
        (("--strict-time", "restore", "t", "--to", "2026-01-01T00:00:00", "--as", "x"), 2, ("zone",)),
        (("restore", "t", "--to", "head", "--as", "a/b"), 2, ("not a valid branch name",)),
        (("restore", "t", "--to", "head", "--as", "main"), 4, ("t@main exists already",)),
        (("append", "t", "missing.txt"), 3, ("missing.txt does not exist",)),
        (("--remote", "gs://bucket", "log", "t"), 2, ("gs://bucket", "s3://bucket/prefix")),
        (("--remote", "s3://", "log", "t"), 2, ("bucket is missing",)),
        (("--remote", "file://host/x", "log", "t"), 2, ("three slashes",)),
        (("append", "t", "data"), 3, ("data is a directory",)),
        (("append", "t", "data/seglog.toml/x"), 3, ("seglog.toml/x does not exist",)),
        (("inspect", "missing"), 3, ("missing does not exist",)),
        (("inspect", "file://missing"), 3, ("missing does not exist",)),
        (("inspect", "data"), 3, ("data is a directory",)),
        (("inspect", "--entries", "missing"), 3, ("missing does not exist",)),
        (("inspect", "--entries", "nowhere/missing"), 3, ("nowhere/missing does not exist",)),
        (("inspect", "--entries", "data"), 3, ("data is a directory",)),
        (("gc", "apply", "7"), 3, ("no plan 7", "gc plan")),
        (("gc", "plan", "7"), 3, ("no plan 7",)),
        (("gc", "plan", "x"), 2, ("PLAN", "whole number")),
        (("gc", "apply"), 2, ("PLAN",)),
        (("gc", "explain", "../x"), 2, ("../x",)),
        (("gc", "explain", "refs/t/nope"), 3, ("refs/t/nope is not in the store",)),
        (("gc", "nope"), 2, ("no argument 'nope'",)),
        (("tag", "list", "nope"), 3, ("no topic nope",)),
        (("undo", "99"), 3, ("no operation 99", "seglog oplog")),
        (("undo", "0"), 2, ("from 1 to",)),
        (("undo", "t"), 4, ("no delete waits for its commit", "seglog log t")),
        (("undo", "t", "head"), 2, ("'head' is neither lsn:N nor delete:N",)),
        (("undo", "t", "lsn:0"), 2, ("from 1 to",)),
        (("undo", "nope", "lsn:2"), 3, ("no topic nope",)),
        (("undo", "1", "--partial"), 2, ("--partial and --message go with a topic",)),
        (("delete", "t", "--before", "9", "--yes"), 3, ("seq 9", "1 to 2")),
        (("delete", "t", "--before", "9", "--dry-run"), 3, ("seq 9", "1 to 2")),
        (("truncate", "t", "--from", "9", "--dry-run"), 3, ("seq 9", "1 to 2")),
    ],
)
def test_bad_input_is_one_clear_line(
    started: Run, arguments: tuple[str, ...], code: int, words: tuple[str, ...]
) -> None:
    _refused(started(*arguments), code, *words)
    assert started("read", "t").out == b"a\nb\n"


def test_a_topic_that_is_not_offloaded_yet_has_an_empty_history(started: Run) -> None:
    shown = started("log", "t")
    assert (shown.code, shown.out, shown.err) == (0, b"", "t: nothing is offloaded yet\n")
    assert (started("tag", "list", "t").code, started("tag", "list", "t").out) == (0, b"")


def test_another_remote_does_not_get_the_commits_of_the_real_one(started: Run, tmp_path: Path) -> None:
    started("seal", "t")
    assert started("offload", "t").code == 0
    other = f"file://{tmp_path}/other"
    for arguments in (("status",), ("status", "t"), ("log", "t")):
        done = started("--remote", other, *arguments)
        assert (done.code, b"lsn" in done.out) == (4, False)
        assert f"{other} does not hold the history of t" in done.err
    (tmp_path / "archive").rename(tmp_path / "other")
    assert "lsn 1 " in started("--remote", other, "log", "t").text
    assert "lsn 1" in started("--remote", other, "status", "-v").text


def test_usage_errors_exit_with_2(started: Run) -> None:
    for arguments in (("delete", "t"), ("offload",), ("offload", "t", "--all"), ("frobnicate",), ("read", "--nope")):
        assert started(*arguments).code == 2


def test_a_directory_that_was_never_initialised(run: Run) -> None:
    _refused(run("status", directory="elsewhere"), 3, "elsewhere is not a seglog data directory", "init")


def test_init_twice_changes_nothing(started: Run, tmp_path: Path) -> None:
    _refused(started("init"), 4, "is a seglog data directory already")
    (tmp_path / "data" / "seglog.toml").write_text("[log]\nnonsense = 1\n")
    _refused(started("init"), 4, "is a seglog data directory already")


def test_a_line_over_the_limit_leaves_the_file_out_whole(started: Run, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"small\n" * 20_000 + b"x" * (16 * 1024 * 1024 + 1) + b"\n")
    _refused(started("append", "t", "big"), 2, "16777217", "nothing was appended")
    assert started("read", "t").out == b"a\nb\n"


def test_a_bad_json_line_is_named(started: Run) -> None:
    for line in (b"{}", b"[]", b"{", b'{"value": "x", "tag": 7}', b'{"value_base64": "%%%"}'):
        _refused(started("append", "t", "--format", "jsonl", stdin=b"\n" + line), 2, "line 2")
    assert started("read", "t").out == b"a\nb\n"


def test_an_unknown_setting_is_named(started: Run, tmp_path: Path) -> None:
    settings = tmp_path / "data" / "seglog.toml"
    for section, key in (
        ("log", "segment_max_evnts"),
        ("offload", "blocksize"),
        ("remote", "uri"),
        ("ofload", "codec"),
    ):
        original = settings.read_text()
        settings.write_text(
            f"{original}\n[{section}]\n{key} = 1\n"
            if f"[{section}]" not in original
            else original.replace(f"[{section}]", f"[{section}]\n{key} = 1")
        )
        _refused(started("status"), 2, "ofload" if section == "ofload" else key)
        settings.write_text(original)


def test_a_directory_held_by_another_process(started: Run, tmp_path: Path) -> None:
    with (tmp_path / "data" / "LOCK").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _refused(started("append", "t", stdin=b"c\n"), 4, "in use")
        assert started("read", "t").out == b"a\nb\n"


def test_a_directory_that_may_not_be_written(started: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    paths = [data, *data.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    for parent in [path for path in tmp_path.parents if path.stat().st_uid == os.geteuid() and path != Path("/")]:
        parent.chmod(parent.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    root = os.geteuid() == 0  # root can write everywhere, so the test becomes another user for a moment
    try:
        if root:
            os.seteuid(65534)
        _refused(started("append", "t", stdin=b"c\n"), 1, "cannot write")
    finally:
        if root:
            os.seteuid(0)
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert started("read", "t").out == b"a\nb\n"


def test_an_unreachable_endpoint(started: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    started("seal", "t")
    _refused(started("--remote", "s3://bucket/acme", "offload", "t"), 1, "cannot reach s3://bucket/acme")
    assert started("append", "t", stdin=b"c\n").code == 0
    assert started("read", "t").out == b"a\nb\nc\n"


def test_a_missing_bucket(started: Run, s3_remote: str) -> None:
    started("seal", "t")
    _refused(started("--remote", "s3://no-such-bucket/acme", "offload", "t"), 3, "bucket no-such-bucket does not exist")


def test_no_credentials(started: Run, s3_remote: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    started("seal", "t")
    _refused(started("--remote", s3_remote, "offload", "t"), 1, "credentials")


def test_a_remote_of_another_format_version(started: Run, tmp_path: Path) -> None:
    started("seal", "t")
    started("offload", "t")
    [ref] = (tmp_path / "archive" / "refs" / "t").iterdir()
    body = ref.read_bytes()
    ref.write_bytes(b"SGL9" + body[4:])
    _refused(started("branch", "list", "t"), 1, "refs/t/main", "format version")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, started: Run) -> None:
    started("append", "t", stdin=b"line\n" * 200_000)
    command = [sys.executable, "-m", "offload", "-C", "data", "read", "t"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.readline() == b"a\n"
        reader.stdout.close()
        assert reader.stderr.read() == b""
        assert reader.wait(60) == 0


def test_the_version_needs_no_directory(run: Run) -> None:
    done = run("--version")
    assert (done.code, done.err) == (0, "")
    assert done.out.decode().split(",")[0] == f"seglog {version('seglog')}"
