"""What only S3 has: refusals and trouble on the wire, each as the error that says what to do."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from catalog.errors import (
    AccessDenied,
    InvalidRemote,
    KeyTaken,
    NoSuchBucket,
    NoSuchObject,
    OutcomeUnknown,
    StoreUnreachable,
)
from catalog.keys import Key
from catalog.objects import PartTag, s3
from catalog.objects.s3 import S3Store

A = Key("vol/log/A")


class ScriptedS3:
    """An HTTP server that gives the answers it was told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str] | None] = []
        self.asked: list[str] = []
        script = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                script.asked.append(f"{self.command} {self.path}")
                answer = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
                if answer is None:  # a reset
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                status, code = answer
                body = f"<Error><Code>{code}</Code><Message>scripted</Message></Error>".encode() if code else b""
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - names of the base class

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def script(s3_environment: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedS3]:
    server = ScriptedS3()
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setattr(s3, "ATTEMPTS", 2)
    yield server
    server.close()


@contextlib.contextmanager
def opened(url: str = "s3://bucket/acme") -> Iterator[S3Store]:
    store = S3Store(url)
    yield store
    store.close()


def complete(store: S3Store) -> None:
    store.complete_upload(A, "upload", [PartTag(1, "etag", "AAAAAA==")])


# ---------------------------------------------------------------- R1, R2


@pytest.mark.parametrize(
    "answer",
    [(500, "InternalError"), (503, "SlowDown"), (409, "ConditionalRequestConflict"), (400, "RequestTimeout"), None],
)
@pytest.mark.parametrize("write", [lambda store: store.put_new(A, b"body"), complete], ids=["put_new", "complete"])
def test_an_answer_that_leaves_the_outcome_open_says_so_after_one_request(
    script: ScriptedS3, write: Callable[[S3Store], None], answer: tuple[int, str] | None
) -> None:
    script.answers = [answer]
    with opened() as store, pytest.raises(OutcomeUnknown):
        write(store)
    assert len(script.asked) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((412, "PreconditionFailed"), KeyTaken),
        ((403, "AccessDenied"), AccessDenied),
        ((403, "SignatureDoesNotMatch"), AccessDenied),
        ((400, "ExpiredToken"), AccessDenied),
        ((404, "NoSuchBucket"), NoSuchBucket),
        ((501, "NotImplemented"), StoreUnreachable),
        ((400, "InvalidRequest"), StoreUnreachable),
    ],
)
def test_a_definite_refusal_of_put_new_is_not_an_open_outcome(
    script: ScriptedS3, answer: tuple[int, str], error: type[Exception]
) -> None:
    script.answers = [answer]
    with opened() as store, pytest.raises(error) as raised:
        store.put_new(A, b"body")
    assert not isinstance(raised.value, OutcomeUnknown)
    assert len(script.asked) == 1


def test_reads_are_repeated_until_they_are_answered(script: ScriptedS3) -> None:
    script.answers = [(500, "InternalError"), (404, "NoSuchKey")]
    with opened() as store, pytest.raises(NoSuchObject):
        store.get(A)
    assert len(script.asked) == 2


@pytest.mark.parametrize("answer", [(500, "InternalError"), None])
def test_trouble_while_reading_is_never_taken_for_absence(script: ScriptedS3, answer: tuple[int, str] | None) -> None:
    script.answers = [answer]
    with opened() as store:
        for look in (store.get, store.head, lambda _: list(store.list("vol/"))):
            with pytest.raises(StoreUnreachable, match="s3://bucket/acme"):
                look(A)


def test_head_asks_why_because_its_own_answer_cannot_say(script: ScriptedS3) -> None:
    with opened() as store:
        for code, error in (("NoSuchKey", NoSuchObject), ("NoSuchBucket", NoSuchBucket)):
            script.answers = [(404, code)]
            with pytest.raises(error):
                store.head(A)
        script.answers = [(400, ""), (400, "ExpiredToken")]
        with pytest.raises(AccessDenied, match="ExpiredToken"):
            store.head(A)


def test_a_body_that_breaks_off_is_read_again(s3_remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(s3_remote) as store:
        store.put_new(A, b"body")
        real = store._client.get_object
        tries = []

        def cut_off(**request: object) -> dict[str, object]:
            answer: dict[str, object] = real(**request)
            tries.append(request)
            if len(tries) == 1:
                answer["Body"]._content_length = "5"  # type: ignore[attr-defined]
            return answer

        monkeypatch.setattr(store._client, "get_object", cut_off)
        assert store.get(A) == b"body"
        assert len(tries) == 2


# ---------------------------------------------------------------- R3, R4


def test_every_listing_sends_its_prefix(script: ScriptedS3) -> None:
    script.answers = [(404, "NoSuchBucket")]
    with opened() as store:
        for look in (store.list, store.list_uploads):
            for prefix in ("", "vol/log/"):
                with pytest.raises(NoSuchBucket):
                    list(look(prefix))
    assert len(script.asked) == 4
    for request in script.asked:
        assert "prefix=acme%2F" in request


def test_a_limited_listing_is_one_request_and_a_whole_one_follows_the_pages(
    s3_remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(s3_remote) as store:
        for name in "abcde":
            store.put_new(Key(f"t/{name}"), b"")
        real = store._client.list_objects_v2
        requests = []

        def small_pages(**request: object) -> object:
            requests.append(request)
            return real(**{"MaxKeys": 2, **request})

        monkeypatch.setattr(store._client, "list_objects_v2", small_pages)
        assert list(store.list("t/")) == ["t/a", "t/b", "t/c", "t/d", "t/e"]
        assert len(requests) == 3
        requests.clear()
        assert list(store.list("t/", limit=2)) == ["t/a", "t/b"]
        assert len(requests) == 1


def test_parts_carry_a_checksum_that_completing_gives_back(s3_remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(s3_remote) as store:
        upload_id = store.create_upload(A, {})
        part = store.put_part(A, upload_id, 1, b"123456789")
        assert part.checksum == "y/Q5Jg=="  # CRC-32 of the check string is CBF43926
        sent: dict[str, Any] = {}
        real = store._once.complete_multipart_upload
        monkeypatch.setattr(
            store._once, "complete_multipart_upload", lambda **named: sent.update(named) or real(**named)
        )
        store.complete_upload(A, upload_id, [part])
        assert sent["MultipartUpload"]["Parts"][0]["ChecksumCRC32"] == part.checksum


# ---------------------------------------------------------------- places and credentials


def test_an_endpoint_nobody_listens_at_is_unreachable(script: ScriptedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    with opened() as store:
        for call in (lambda: store.get(A), lambda: store.head(A), lambda: store.put_new(A, b"")):
            with pytest.raises(StoreUnreachable, match=str(port)):
                call()


def test_a_missing_bucket_is_named(s3_environment: str) -> None:
    with opened("s3://no-such-bucket/acme") as store:
        for call in (
            lambda: store.get(A),
            lambda: store.head(A),
            lambda: list(store.list("")),
            lambda: store.put_new(A, b""),
            lambda: store.create_upload(A, {}),
        ):
            with pytest.raises(NoSuchBucket, match="no-such-bucket"):
                call()


def test_without_credentials_access_is_denied_with_what_to_set(
    s3_environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with opened() as store:
        for call in (lambda: store.get(A), lambda: store.put_new(A, b"")):
            with pytest.raises(AccessDenied, match="no AWS credentials found") as raised:
                call()
            assert "AWS_ACCESS_KEY_ID" in str(raised.value.hint)


def test_wrong_credentials_are_denied(script: ScriptedS3) -> None:
    script.answers = [(403, "InvalidAccessKeyId")]
    with opened() as store:
        for call in (
            lambda: store.get(A),
            lambda: store.head(A),
            lambda: list(store.list("")),
            lambda: store.put(A, b"", {}),
        ):
            with pytest.raises(AccessDenied, match="InvalidAccessKeyId"):
                call()


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3:///x", "http://bucket/x", "s3://BUCKET/x", "s3://b/x", "s3://bucket/a b", "s3://bucket/../x",
     "s3://bucket/.x", "s3://bucket/x?y", "s3://bucket/a//b", "bucket/x"],
)  # fmt: skip
def test_a_url_that_names_no_place_is_refused(s3_environment: str, url: str) -> None:
    with pytest.raises(InvalidRemote):
        S3Store(url)


def test_a_profile_that_is_not_there_is_refused(s3_environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(InvalidRemote, match="nobody"):
        S3Store("s3://bucket/acme")


@pytest.mark.parametrize(("url", "base"), [("s3://bucket", ""), ("s3://bucket/", ""), ("s3://bucket/a/b/", "a/b/")])
def test_a_prefix_ends_in_one_slash_whatever_the_user_wrote(s3_environment: str, url: str, base: str) -> None:
    with opened(url) as store:
        assert store._base == base
        assert store.url == url.rstrip("/")


def test_a_session_brings_its_own_credentials(s3_remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = boto3.Session(aws_access_key_id="tenant", aws_secret_access_key="secret", region_name="us-east-1")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    store = S3Store(s3_remote, session)
    store.put_new(A, b"one")
    assert store.get(A) == b"one"
    store.close()
