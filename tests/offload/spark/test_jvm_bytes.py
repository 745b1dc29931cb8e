"""Test the JVM reader's ports to bytes: files through Hadoop, and S3 over HTTP."""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from catalog.format.keys import Key
from offload.wiring import open_store
from tests.offload.spark.judge import Judge
from tests.s3_server import ACCESS_KEY, REGION, SECRET_KEY

BODY = bytes(range(256)) * 40
KEY = "v/segments/an id+1"


class Store:
    """A server that serves the range that was asked for, unless a test chooses its answers.

    `faults` are the next answers, and `always` is each answer after them.
    """

    def __init__(self) -> None:
        self.faults: list[Callable[[BaseHTTPRequestHandler], None]] = []
        self.always: Callable[[BaseHTTPRequestHandler], None] = serve
        self.requests: list[tuple[str, dict[str, str]]] = []
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                store.requests.append((self.path, {name.lower(): text for name, text in self.headers.items()}))
                (store.faults.pop(0) if store.faults else store.always)(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def _range(handler: BaseHTTPRequestHandler) -> tuple[int, int]:
    first, last = handler.headers["range"].removeprefix("bytes=").split("-")
    return int(first), min(int(last), len(BODY) - 1)


def serve(handler: BaseHTTPRequestHandler, cut: int = 0) -> None:
    first, last = _range(handler)
    body = BODY[first : last + 1]
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {first}-{last}/{len(BODY)}")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) - cut])
    if cut:
        handler.close_connection = True


def refuse(status: int, code: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = f"<Error><Code>{code}</Code></Error>".encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def cut(handler: BaseHTTPRequestHandler) -> None:
    serve(handler, cut=7)


def reset(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.close()
    handler.close_connection = True


def drip(handler: BaseHTTPRequestHandler) -> None:
    """Send a byte now and then, so that the connection is never idle for as long as the reader's patience."""
    first, last = _range(handler)
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {first}-{last}/{len(BODY)}")
    handler.send_header("Content-Length", str(last + 1 - first))
    handler.end_headers()
    with contextlib.suppress(ConnectionError):
        for place in range(first, first + 8):
            handler.wfile.write(BODY[place : place + 1])
            time.sleep(0.5)
    handler.close_connection = True


def page(handler: BaseHTTPRequestHandler) -> None:
    """Answer 404 as a proxy does, with a page of its own."""
    body = b"<html><head><title>404 Not Found</title></head></html>"
    handler.send_response(404)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def shifted(handler: BaseHTTPRequestHandler) -> None:
    """Answer a range that begins one byte later."""
    first, last = _range(handler)
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {first + 1}-{last + 1}/{len(BODY)}")
    handler.send_header("Content-Length", str(last + 1 - first))
    handler.end_headers()
    handler.wfile.write(BODY[first + 1 : last + 2])


def whole(handler: BaseHTTPRequestHandler) -> None:
    """Answer the whole object, as a server does that knows no ranges."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(BODY)))
    handler.end_headers()
    handler.wfile.write(BODY)


def slow(handler: BaseHTTPRequestHandler) -> None:
    """Send the head at once, and the body after the reader's patience of two seconds."""
    first, last = _range(handler)
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {first}-{last}/{len(BODY)}")
    handler.send_header("Content-Length", str(last + 1 - first))
    handler.end_headers()
    time.sleep(3)
    handler.close_connection = True


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def read(judge: Judge, endpoint: str, offset: int = 5, length: int = 1000, **environment: str) -> dict[str, Any]:
    variables = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        **environment,
    }
    return judge.ask(
        op="read", url="s3://bucket/a prefix", key=KEY, offset=offset, length=length, environment=variables
    )


def body_of(answer: dict[str, Any]) -> bytes:
    assert "error" not in answer, answer
    return base64.b64decode(answer["body"])


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


def test_credentials_come_from_a_profile_and_their_absence_says_what_to_do(judge: Judge, store: Store, tmp_path: Path):
    absent = {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None, "HOME": str(tmp_path)}
    kind, text = read(judge, store.url, **absent)["error"]
    assert kind == "IOException"
    assert "there are no AWS credentials" in text
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = other\naws_secret_access_key = other\n"
        f"[work]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    )
    assert body_of(read(judge, store.url, **absent, AWS_PROFILE="work")) == BODY[5:1005]
    assert f"Credential={ACCESS_KEY}/" in store.requests[-1][1]["authorization"]


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
