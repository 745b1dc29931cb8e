"""Test the JVM reader's ports to bytes: files through Hadoop, and S3 over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from catalog.format.keys import Key
from offload.wiring import open_store
from tests.offload.spark.http_store import (
    BODY,
    KEY,
    Store,
    body_of,
    cut,
    drip,
    page,
    read,
    refuse,
    reset,
    serve,
    shifted,
    slow,
    store,
    whole,
)
from tests.offload.spark.judge import Judge
from tests.s3_server import ACCESS_KEY, REGION, SECRET_KEY

__all__ = ["store"]

pytestmark = pytest.mark.long  # because all tests of the judge share a JVM of their own


@pytest.mark.parametrize("session_token", ["", "a/token="])
def test_a_request_has_the_range_and_the_signature_that_botocore_makes(judge: Judge, store: Store, session_token: str):
    environment = {"AWS_SESSION_TOKEN": session_token} if session_token else {}
    assert body_of(read(judge, store.url, **environment)) == BODY[5:1005]
    [(path, headers)] = store.requests
    assert path == "/bucket/a%20prefix/v/segments/an%20id%2B1"
    assert headers["range"] == "bytes=5-1004"

    wanted = AWSRequest("GET", store.url + path, headers={"x-amz-content-sha256": headers["x-amz-content-sha256"]})
    if session_token:
        wanted.headers["x-amz-security-token"] = session_token
    wanted.context["timestamp"] = headers["x-amz-date"]
    wanted.headers["x-amz-date"] = headers["x-amz-date"]
    auth = S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY, session_token or None), "s3", REGION)
    text = auth.string_to_sign(wanted, auth.canonical_request(wanted))
    assert headers["authorization"].endswith(f"Signature={auth.signature(text, wanted)}")
    assert ("x-amz-security-token" in headers) == bool(session_token)


@pytest.mark.parametrize(
    "fault",
    [
        refuse(503, "SlowDown"),
        refuse(500, "InternalError"),
        refuse(429, "TooManyRequests"),
        cut,
        reset,
        slow,
        pytest.param(drip, marks=pytest.mark.soak(part=9)),
    ],
)
def test_a_fault_that_passes_costs_another_attempt(judge: Judge, store: Store, fault: Any):
    store.faults = [fault]
    assert body_of(read(judge, store.url)) == BODY[5:1005]
    assert len(store.requests) == 2


def test_a_fault_that_stays_is_an_error_and_no_absence(judge: Judge, store: Store):
    store.faults = [refuse(503, "SlowDown")] * 6
    kind, text = read(judge, store.url)["error"]
    assert kind == "IOException"
    assert "after 6 attempts: SlowDown" in text
    assert len(store.requests) == 6


def test_only_no_such_key_is_an_absence(judge: Judge, store: Store):
    store.faults = [refuse(404, "NoSuchKey"), refuse(404, "NoSuchBucket"), refuse(403, "AccessDenied")]
    assert read(judge, store.url)["error"] == ["NoSuchObject", f"{KEY} is not in the store"]
    for code in ("NoSuchBucket", "AccessDenied"):
        assert read(judge, store.url)["error"] == ["IOException", f"the store refuses to read {KEY}: {code}"]
    store.faults = [page]
    assert read(judge, store.url)["error"] == ["IOException", f"the store refuses to read {KEY}: status 404"]
    assert len(store.requests) == 4


def test_another_range_or_the_whole_object_is_refused(judge: Judge, store: Store):
    store.faults = [shifted, whole]
    other = f"the store answered another range of {KEY} than was asked for"
    for text in (other, f"the store refuses to read {KEY}: status 200"):
        assert read(judge, store.url)["error"] == ["IOException", text]


@pytest.mark.soak(part=9)
@pytest.mark.parametrize("fault", [refuse(500, "InternalError"), cut, reset, slow, None])
def test_no_fault_that_stays_is_an_absence(judge: Judge, store: Store, fault: Any):
    """Without a fault, nobody listens. Java's client repeats a GET once by itself, so the requests are not counted."""
    store.always = fault or serve
    endpoint = store.url if fault else "http://127.0.0.1:9"
    kind, text = read(judge, endpoint)["error"]
    assert kind == "IOException"
    assert "after 6 attempts" in text
    store.always = serve
    assert body_of(read(judge, store.url)) == BODY[5:1005]


def test_an_object_that_is_shorter_is_damage(judge: Judge, store: Store):
    kind, text = read(judge, store.url, offset=len(BODY) - 10, length=20)["error"]
    assert (kind, text) == ("InvalidObject", f"{KEY}: it ends at byte {len(BODY)}, {len(BODY) + 10} were expected")
    store.faults = [refuse(416, "InvalidRange")]
    assert read(judge, store.url)["error"][0] == "InvalidObject"


def test_an_s3_server_gives_the_same_bytes(judge: Judge, s3_remote: str, s3_endpoint: str):
    key = Key("v/segments/sid")
    open_store(s3_remote).put(key, BODY, {})
    question = {
        "op": "read",
        "url": s3_remote,
        "key": key,
        "offset": 100,
        "length": 500,
        "environment": {
            "AWS_ENDPOINT_URL": s3_endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        },
    }
    assert body_of(judge.ask(**question)) == BODY[100:600]
    assert judge.ask(**{**question, "key": "v/other"})["error"] == ["NoSuchObject", "v/other is not in the store"]
    assert judge.ask(**{**question, "offset": len(BODY) - 1})["error"][0] == "InvalidObject"
    assert judge.ask(**{**question, "offset": len(BODY) + 1})["error"][0] == "InvalidObject"


def test_a_file_gives_the_same_bytes(judge: Judge, tmp_path: Path):
    question = {"op": "read", "url": tmp_path.as_uri(), "key": "akey", "offset": 100, "length": 500, "environment": {}}
    (tmp_path / "akey").write_bytes(BODY)
    assert body_of(judge.ask(**question)) == BODY[100:600]
    assert body_of(judge.ask(**{**question, "length": 0})) == b""
    assert judge.ask(**{**question, "key": "other"})["error"] == ["NoSuchObject", "other is not in the store"]
    assert judge.ask(**{**question, "offset": len(BODY) - 100})["error"] == [
        "InvalidObject",
        f"akey: it ends at byte {len(BODY)}, {len(BODY) + 400} were expected",
    ]
