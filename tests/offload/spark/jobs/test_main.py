"""The command line of the jobs, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offload.errors import InvalidOption
from offload.format.labels import software_version
from offload.spark.jobs.__main__ import main
from offload.spark.jobs.progress import job_state
from tests.offload.spark.jobs.remotes import records_of


def test_a_dry_run_tells_what_would_be_read_without_spark(remote_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statistics", remote_url, "--dry-run"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["topic", "branch", "lsn", *["first", "seq", "last", "seq"], "segments", "stored", "bytes"]
    assert [line.split()[0] for line in lines] == list(records_of(remote_url))
    assert main(["statistics", remote_url, "--dry-run", "--json", "--topic", "orders"]) == 0
    [row] = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["topic"], row["lsn"], row["last_seq"], row["segments"]) == ("orders", 8, 160, 6)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["REMOTE", "--topic", "absent"], 3, "absent"),
        (["REMOTE", "--topic", "ab*"], 3, "ab*"),
        (["REMOTE", "--topic", "orders", "--version", "now"], 2, "'now' is not an LSN"),
        (["REMOTE", "--topic", "orders", "--version", "99"], 3, "lsn:99"),
        (["REMOTE", "--topic", "orders", "--version", "tag:none"], 3, "none"),
        (["REMOTE", "--as-of", "yesterday"], 2, "timestampAsOf"),
        (["ftp://remote"], 2, "the scheme is none of s3, file, https and http"),
        (["file:///nowhere/at/all"], 3, "directory /nowhere/at does not exist"),
    ],
)
def test_bad_input_has_an_error_of_one_line(
    words: list[str], code: int, told: str, remote_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["statistics", *(remote_url if word == "REMOTE" else word for word in words), "--dry-run"]) == code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("seglog: ")
    assert told in line


def test_a_role_that_executors_could_not_take_is_refused(
    remote_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGLOG_TENANT_ROLE_ARN", "arn:aws:iam::111122223333:role/tenants")
    assert main(["statistics", remote_url, "--dry-run"]) == 2
    assert "a job takes the credentials of an AWS profile" in capsys.readouterr().err


def test_a_number_that_the_job_does_not_take_is_a_usage_error(
    remote_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compact", remote_url, "--least", "1", "--dry-run"]) == 2
    assert capsys.readouterr().err.startswith("seglog: argument least is 1 (int): it must be a whole number from 2 to ")


def test_an_unknown_job_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["polish", "file:///tmp/remote"])
    assert ended.value.code == 2
    assert "polish" in capsys.readouterr().err


def test_a_state_keeps_finished_work_and_drops_a_cut_line(tmp_path: Path) -> None:
    with job_state(tmp_path / "state", "count", {"remote": "a"}) as state:
        state.add({"one": 1, "two": [2]})
    file = tmp_path / "state" / "count.jsonl"
    file.write_bytes(file.read_bytes() + b'["three", ')
    with job_state(tmp_path / "state", "count", {"remote": "a"}) as state:
        assert state.done == {"one": 1, "two": [2]}
        state.add({"four": 4})
    with job_state(tmp_path / "state", "count", {"remote": "a"}) as state:
        assert state.done == {"one": 1, "two": [2], "four": 4}


def test_a_state_of_another_version_is_refused(tmp_path: Path) -> None:
    with job_state(tmp_path, "count", {}) as state:
        state.add({"one": 1})
    file = tmp_path / "count.jsonl"
    file.write_text(file.read_text().replace(software_version(), "0.0.1"))
    with pytest.raises(InvalidOption, match=r'a job with \{"seglog": "0\.0\.1"\}'), job_state(tmp_path, "count", {}):
        pass


def test_a_state_of_another_job_or_of_a_running_one_is_refused(tmp_path: Path) -> None:
    def opened(path: Path, remote: str) -> None:
        with job_state(path, "count", {"remote": remote}):
            pass

    with job_state(tmp_path, "count", {"remote": "a"}), pytest.raises(InvalidOption, match="another run has"):
        opened(tmp_path, "a")
    with pytest.raises(InvalidOption, match=r'a job with \{"remote": "a", "seglog": ".*"\}'):
        opened(tmp_path, "b")
    (tmp_path / "count.jsonl").write_bytes(b"nonsense\n")
    with pytest.raises(InvalidOption, match="is damaged"):
        opened(tmp_path, "a")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidOption, match="cannot be opened"):
        opened(tmp_path / "file", "a")
