"""Test where the JVM reader takes credentials from, and what it does when they end."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.offload.spark.http_store import BODY, KEY, Store, body_of, read, refuse, store
from tests.offload.spark.judge import Judge
from tests.s3_server import ACCESS_KEY, REGION, SECRET_KEY

__all__ = ["store"]

pytestmark = pytest.mark.long

NONE = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": None}
MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def profile(home: Path, access_key: str, name: str = "work") -> None:
    (home / ".aws").mkdir(exist_ok=True)
    (home / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = other\naws_secret_access_key = other\n"
        f"[{name}]\naws_access_key_id = {access_key}\naws_secret_access_key = {SECRET_KEY}\n"
    )


def used(store: Store) -> list[str]:
    """Return the access key of each request."""
    return [headers["authorization"].split("Credential=")[1].split("/")[0] for _, headers in store.requests]


def test_credentials_come_from_a_profile_and_their_absence_says_what_to_do(judge: Judge, store: Store, tmp_path: Path):
    """No driver is there that would hand over its own."""
    kind, text = read(judge, store.url, **NONE, HOME=str(tmp_path))["error"]
    assert kind == "IOException"
    assert "there are no AWS credentials" in text
    assert "spark.network.crypto.enabled" in text
    profile(tmp_path, ACCESS_KEY)
    assert body_of(read(judge, store.url, **NONE, HOME=str(tmp_path), AWS_PROFILE="work")) == BODY[5:1005]
    assert used(store) == [ACCESS_KEY]


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId"])
def test_a_profile_that_a_program_has_written_again_is_read_again(
    judge: Judge, store: Store, tmp_path: Path, code: str
):
    def expire(handler: BaseHTTPRequestHandler) -> None:
        profile(tmp_path, "newer")
        refuse(400, code)(handler)

    profile(tmp_path, "older")
    store.faults = [expire]
    assert body_of(read(judge, store.url, **NONE, HOME=str(tmp_path), AWS_PROFILE="work")) == BODY[5:1005]
    assert used(store) == ["older", "newer"]


def test_credentials_that_stay_old_are_an_error_after_one_request(judge: Judge, store: Store):
    store.always = refuse(400, "ExpiredToken")
    assert read(judge, store.url)["error"] == ["IOException", f"the store refuses to read {KEY}: ExpiredToken"]
    assert len(store.requests) == 1


@pytest.mark.parametrize(
    ("expires", "steps", "keys"),
    [
        ([None], ["", "", ""], [0, 0, 0]),
        ([HOUR_MS], ["", "", ""], [0, 0, 0]),
        ([-1, HOUR_MS], ["", ""], [1, 1]),
        ([MINUTE_MS], ["", "", ""], [0, 0, 0]),  # the source was asked just now, and has none that live longer
        ([HOUR_MS], ["", "refused", "", "refused"], [0, 1, 1, 2]),
    ],
)
def test_a_source_is_asked_again_if_its_credentials_end(
    judge: Judge, expires: list[int | None], steps: list[str], keys: list[int]
):
    assert judge.ask(op="renew", expires=expires, steps=steps) == {"keys": keys}


def program(place: Path, *answers: str) -> dict[str, str]:
    """Return the environment whose profile names a program. Its runs give the answers, and the last one again."""
    for number, answer in enumerate(answers, 1):
        (place / f"answer-{number}").write_text(answer)
    script = place / "program"
    script.write_text(
        "#!/bin/sh\n"
        f"cd '{place}'; echo run >> runs; number=$(wc -l < runs)\n"
        f"[ -f answer-$((number)) ] || number={len(answers)}\n"
        "cat answer-$((number))\n"
    )
    script.chmod(0o700)
    (place / "config").write_text(f"[profile acme]\nregion = {REGION}\ncredential_process = {script} 'an argument'\n")
    return {"AWS_CONFIG_FILE": str(place / "config"), "AWS_PROFILE": "acme", "HOME": str(place)}


def printed(key: str, lives: timedelta | None, **more: object) -> str:
    ends = {} if lives is None else {"Expiration": (datetime.now(UTC) + lives).isoformat()}
    return json.dumps({"Version": 1, "AccessKeyId": key, "SecretAccessKey": "s", "SessionToken": "t", **ends, **more})


def runs(place: Path) -> int:
    return len((place / "runs").read_text().splitlines())


@pytest.mark.parametrize(
    ("lives", "keys"),
    [
        ((None, None), ["first", "first", "first"]),
        ((timedelta(hours=1), None), ["first", "first", "first"]),
        ((timedelta(minutes=1), None), ["first", "first", "first"]),
        ((timedelta(seconds=-1), timedelta(hours=1)), ["first", "second", "second"]),
    ],
)
def test_the_program_of_a_profile_runs_once_in_a_life(
    judge: Judge, store: Store, tmp_path: Path, lives: tuple[timedelta | None, timedelta | None], keys: list[str]
):
    environment = program(tmp_path, printed("first", lives[0]), printed("second", lives[1]))
    for _ in keys:
        assert body_of(read(judge, store.url, **NONE, **environment)) == BODY[5:1005]
    assert (used(store), runs(tmp_path)) == (keys, len(set(keys)))
    assert store.requests[0][1]["x-amz-security-token"] == "t"


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId", "InvalidTokenId"])
def test_a_program_runs_again_if_the_store_refuses_its_key(judge: Judge, store: Store, tmp_path: Path, code: str):
    environment = program(tmp_path, printed("first", None), printed("second", None))
    store.faults = [refuse(403, code)]
    assert body_of(read(judge, store.url, **NONE, **environment)) == BODY[5:1005]
    assert (used(store), runs(tmp_path)) == (["first", "second"], 2)


@pytest.mark.parametrize("file", ["config", "credentials"])
def test_keys_of_the_credentials_file_go_before_a_program_and_those_of_the_configuration_after_it(
    judge: Judge, store: Store, tmp_path: Path, file: str
):
    """boto3 has the same order."""
    environment = program(tmp_path, printed("of the program", None))
    keys = "aws_access_key_id = of the file\naws_secret_access_key = s\n"
    if file == "config":
        (tmp_path / "config").write_text((tmp_path / "config").read_text() + keys)
    else:
        (tmp_path / "keys").write_text(f"[acme]\n{keys}")
        environment["AWS_SHARED_CREDENTIALS_FILE"] = str(tmp_path / "keys")
    assert body_of(read(judge, store.url, **NONE, **environment)) == BODY[5:1005]
    assert used(store) == ["of the program" if file == "config" else "of the file"]
    assert body_of(read(judge, store.url, **environment)) == BODY[5:1005]
    assert used(store)[1:] == [ACCESS_KEY]  # the environment goes before both


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("a secret", "prints no JSON"),
        ("", "prints no credentials of version 1"),
        ('{"Version": 2, "AccessKeyId": "a secret", "SecretAccessKey": "a secret"}', "no credentials of version 1"),
        ('{"Version": 1, "AccessKeyId": "a secret"}', "no credentials of version 1"),
        (printed("a secret", None, Expiration="a secret"), "an Expiration that is no time"),
        ("a secret" * 10_000, "prints too much"),
    ],
)
def test_a_program_that_gives_no_credentials_is_an_error_without_what_it_printed(
    judge: Judge, store: Store, tmp_path: Path, answer: str, reason: str
):
    kind, text = read(judge, store.url, **NONE, **program(tmp_path, answer))["error"]
    assert (kind, reason in text, "a secret" in text) == ("IOException", True, False), text
    assert not store.requests


@pytest.mark.parametrize(
    ("command", "reason"), [("exit 3", "ended with exit code 3"), ("/no/such/program", "ended with exit code 127")]
)
def test_a_program_that_fails_is_an_error_and_no_other_credentials_are_taken(
    judge: Judge, store: Store, tmp_path: Path, command: str, reason: str
):
    environment = program(tmp_path, "")
    (tmp_path / "config").write_text(f"[profile acme]\ncredential_process = {command}\n")
    kind, text = read(judge, store.url, **NONE, **environment)["error"]
    assert (kind, reason in text) == ("IOException", True), text
