"""Test the credentials that a program in another language gets: those that boto3 finds."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from catalog.errors import AccessDenied
from catalog.objects.s3_credentials import CredentialFinder, FoundCredentials


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leave nothing of the environment but a configuration file."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "config"
    path.write_text("")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(path))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return path


def program(config: Path, key: str, lives: timedelta) -> datetime:
    """Let a program give the credentials, as a profile names it. Return when they expire."""
    expires = (datetime.now(UTC) + lives).replace(microsecond=0)
    answer = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": "s", "SessionToken": "t"}
    path = config.parent / "answer"
    path.write_text(json.dumps(answer | {"Expiration": expires.isoformat()}))
    config.write_text(f"[default]\ncredential_process = cat {path}\n")
    return expires


def test_a_program_gives_credentials_that_boto_renews(config: Path) -> None:
    finder = CredentialFinder()
    expires = program(config, "first", timedelta(minutes=12))
    found = finder.find()
    assert found == FoundCredentials("first", "s", "t", int(expires.timestamp()) * 1000)
    assert "first" not in repr(found)
    program(config, "second", timedelta(hours=1))  # the first ones end in less than 15 minutes
    assert finder.find().access_key == "second"
    program(config, "third", timedelta(hours=1))
    assert finder.find().access_key == "second"


def test_credentials_of_a_profile_are_read_again(config: Path) -> None:
    finder = CredentialFinder()
    for key in ("one", "two"):
        config.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = s\n")
        assert finder.find() == FoundCredentials(key, "s", None, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "boto3 finds no credentials here"),
        ("[default]\ncredential_process = /no/such/program\n", "No such file"),
        ("[default]\ncredential_process = false\n", "boto3 gets no credentials here"),
        ("[default]\ncredential_process = echo no json\n", "boto3 gets no credentials here"),
    ],
)
def test_no_credentials_is_an_error_that_says_what_to_do(config: Path, text: str, reason: str) -> None:
    config.write_text(text)
    with pytest.raises(AccessDenied, match=reason) as caught:
        CredentialFinder().find()
    assert "AWS_ACCESS_KEY_ID" in (caught.value.hint or "")
