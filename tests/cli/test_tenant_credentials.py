"""`seglog tenant credentials` as a program that AWS tools run, and `seglog tenant check`, against moto's server."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest

from tests.faults.front import Front, HttpFault
from tests.s3_server import ACCESS_KEY, may_be_checked
from tests.schemas import SCHEMAS, mismatches
from tests.worlds.command import Run

ROLE = "arn:aws:iam::111122223333:role/tenants"
WORDS = ("tenant", "credentials", "acme", "--role", "reader", "--bucket", "archive", "--role-arn", ROLE)


def test_the_output_is_that_of_a_credential_process(run: Run, s3_environment: str, tmp_path: Path) -> None:
    done = run(*WORDS, "--for", "15m", directory=None)
    assert (done.code, done.err) == (0, "")
    made = json.loads(done.text)
    assert list(made) == ["Version", "AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"]
    left = datetime.fromisoformat(made["Expiration"]) - datetime.now(UTC)
    assert timedelta(minutes=14) < left <= timedelta(minutes=15, seconds=1)
    assert not [*tmp_path.iterdir()]
    found = json.loads(run("--json", *WORDS, directory=None).text)
    assert mismatches(found, SCHEMAS["tenant_grant"]) == []


def test_a_profile_of_aws_runs_the_command(
    s3_environment: str, s3_remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"{sys.executable} -m offload {' '.join(WORDS)}"
    (tmp_path / "config").write_text(f"[profile acme]\nregion = us-east-1\ncredential_process = {program}\n")
    (tmp_path / "caller").write_text(f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = s\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "caller"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    found = boto3.Session(profile_name="acme").get_credentials()
    assert found is not None
    assert found.method == "custom-process"
    assert found.get_frozen_credentials().token


def test_a_profile_that_takes_the_role_with_itself_is_refused_and_starts_no_storm(
    s3_environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark sets AWS_PROFILE for its executors, so the program that the profile names has it too."""
    program = f"{sys.executable} -m offload {' '.join(WORDS)}"
    (tmp_path / "config").write_text(f"[profile acme]\ncredential_process = {program}\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "acme")
    done = subprocess.run([*program.split()], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "this command runs within itself" in done.stderr
    assert "Give --profile" in done.stderr


def test_the_data_directory_gives_what_the_options_do_not(run: Run, s3_remote: str, tmp_path: Path) -> None:
    assert run("init", "--remote", s3_remote).code == 0
    path = tmp_path / "data" / "seglog.toml"
    path.write_text(f'[remote]\nurl = "{s3_remote}"\n[tenant]\nname = "acme"\nrole_arn = "{ROLE}"\n')
    assert json.loads(run("tenant", "credentials", "acme", "--role", "writer").text)["Version"] == 1
    other = run("tenant", "credentials", "other", "--role", "writer")
    assert (other.code, other.out) == (2, b"")
    assert "is not the remote of other" in other.err
    without = run("tenant", "credentials", "acme", "--role", "writer", directory=None)
    assert (without.code, without.out) == (2, b"")
    assert "--role-arn" in without.err


def test_sts_that_refuses_is_one_line(run: Run, s3_environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Front(s3_environment, [HttpFault("AccessDenied", lasts=True)]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        done = run(*WORDS, directory=None)
    assert (done.code, done.out, done.err.count("\n")) == (1, b"", 1)
    assert ROLE in done.err


@pytest.mark.parametrize(
    ("plan", "code", "part"),
    [
        ([HttpFault("AccessDenied", nth=3)], 0, "whole bucket: denied"),
        ([], 1, "without a prefix is allowed"),
        ([HttpFault("AccessDenied", nth=2)], 1, "is denied"),
    ],
)
def test_a_check_says_whether_the_bucket_keeps_the_tenant_apart(
    run: Run,
    s3_remote: str,
    s3_environment: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plan: list[HttpFault],
    code: int,
    part: str,
) -> None:
    assert run("init", "--remote", s3_remote).code == 0
    path = tmp_path / "data" / "seglog.toml"
    path.write_text(f'[remote]\nurl = "{s3_remote}"\n[tenant]\nname = "acme"\nrole_arn = "{ROLE}"\n')
    may_be_checked(s3_environment, s3_remote.split("/")[2])
    with Front(s3_environment, plan) as front:  # the first request is AssumeRole
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        done = run("tenant", "check", "acme")
        front.restart(plan)
        found = json.loads(run("--json", "tenant", "check", "acme").text.splitlines()[0])
    assert done.code == code, done.err
    assert part in done.text
    assert mismatches(found, SCHEMAS["tenant_check"]) == []
