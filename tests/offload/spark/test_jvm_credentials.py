"""Test where the JVM reader takes credentials from, and what it does when they end."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.offload.spark.http_store import BODY, KEY, Store, body_of, read, refuse, store
from tests.offload.spark.judge import Judge
from tests.s3_server import ACCESS_KEY, SECRET_KEY

__all__ = ["store"]

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
