"""A real S3 HTTP server (moto's, or MinIO's) for the tests, in a process of its own, on a free loopback port.

The process is separate because tests turn every warning into an error, and kill processes. The server ends when its
standard input does, so none outlives the test run.

This module mends moto where the tests rely on S3 and moto falls short of it:
- moto checks `If-None-Match` and `If-Match` and writes in two steps. Here, requests that change an object take turns.
- moto answers 500 to a part or a completion of an upload that is gone. Here, the answer is NoSuchUpload.
- moto trusts any checksum. Here, a wrong checksum is refused (BadDigest), and a right one is kept and returned.

tests/faults/front.py counts the requests to the server, and fails them.
"""

from __future__ import annotations

import base64
import gc
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import boto3
import pytest

from benchmarks.minio import serving_minio
from catalog.format.checksum import Checksum, ChecksumKind
from tests import work
from tests.s3_recorder import HARNESS, PATH, Recorder, Taken

ACCESS_KEY = "seglog-test"
SECRET_KEY = "seglog-test-secret"
REGION = "us-east-1"
MINIO = os.environ.get("TESTS_MINIO", "")

#: The keys of a client for what a test does itself: it may leave the prefix of a store.
AS_HARNESS = {"aws_access_key_id": ACCESS_KEY if MINIO else HARNESS, "aws_secret_access_key": SECRET_KEY}

#: The count at the end of a run. It is 0, because otherwise the run fails.
OUTSIDE_PREFIX = "requests to S3: outside the prefix of their store"

#: Keys of other users, encryption by a key service, uploads listed by prefix: a default MinIO has none of these.
not_of_minio = pytest.mark.skipif(bool(MINIO), reason="MinIO, as it starts, does not have it")


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The URL of a running server: moto's, or MinIO's if TESTS_MINIO names that program (`make test-minio`).

    moto takes parts of any size. So tests may offload in small blocks.
    """
    if not MINIO:
        with _running_moto() as endpoint:
            yield endpoint
            report_requests(endpoint, "no test of its own")
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        serving_minio(MINIO, Path(directory) / "data", ACCESS_KEY, SECRET_KEY) as endpoint,
    ):
        yield endpoint


@pytest.fixture(scope="session")
def moto_endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of moto's server, also in a run with MinIO, which takes no small parts."""
    if not MINIO:
        yield request.getfixturevalue("s3_endpoint")
        return
    with _running_moto() as endpoint:
        yield endpoint


def own_prefixes(endpoint: str, **prefixes: Sequence[str]) -> None:
    """Name the prefixes of the stores in a bucket, or those of an access key, until the end of the test."""
    _tell_recorder(endpoint, of=prefixes)


def of_several_tenants(endpoint: str, bucket: str) -> None:
    """Say that each request on the bucket needs the access key of the tenant whose prefix it names.

    The recorder knows the keys of STS, and the keys that `own_prefixes` names.
    """
    _tell_recorder(endpoint, shared=[bucket])


def may_be_checked(endpoint: str, bucket: str) -> None:
    """Say that the test makes checks of the bucket, which send a LIST without a prefix on purpose."""
    _tell_recorder(endpoint, checked=[bucket])


def taken_requests(endpoint: str, *, is_last: bool = False) -> Taken:
    """Return what the recorder saw since the last call. With `is_last`, it forgets all that the test said."""
    taken = Taken(**json.loads(_ask_recorder(endpoint, "DELETE" if is_last else "GET", b"")))
    work.count("requests to S3: recorded", taken.requests)
    work.count("requests to S3: access key compared with its tenant", taken.keys)
    return taken


def report_requests(endpoint: str, test: str) -> None:
    """Count the requests since the last report. If one left the prefix of its store, the run of the tests fails.

    What a test does itself, it does with the keys `AS_HARNESS`.
    """
    if MINIO:
        return
    taken = taken_requests(endpoint, is_last=True)
    work.count(OUTSIDE_PREFIX, taken.outside)
    if taken.outside:
        shown = "\n".join([f"{taken.outside} requests left the prefix of their store, in {test}", *taken.examples])
        pytest.fail(shown, pytrace=False)


def _tell_recorder(endpoint: str, **said: object) -> None:
    if not MINIO:
        _ask_recorder(endpoint, "PUT", json.dumps(said).encode())


def _ask_recorder(endpoint: str, method: str, body: bytes) -> bytes:
    request = urllib.request.Request(endpoint + PATH, data=body or None, method=method)  # noqa: S310 - our own server
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return answer.read()  # type: ignore[no-any-return]


@contextmanager
def _running_moto() -> Iterator[str]:
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(
            [sys.executable, str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SEGLOG_"))}
            | {"PYTHONPATH": str(Path(__file__).parents[1])}
            | {"S3_UPLOAD_PART_MIN_SIZE": "1", "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": str(5 << 20)},
        )
        with server:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            if not port:
                log.seek(0)
                pytest.fail(f"the S3 server did not start:\n{log.read()}")
            yield f"http://127.0.0.1:{port}"
            server.kill()


@pytest.fixture(scope="session")
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with one authority. Otherwise each client parses all of the machine, for a server without TLS."""
    all_of_them = Path(boto3.__file__).parents[1] / "botocore" / "cacert.pem"
    end = "-----END CERTIFICATE-----\n"
    path = tmp_path_factory.mktemp("certificate") / "ca.pem"
    path.write_text(all_of_them.read_text(encoding="utf-8").partition(end)[0] + end, encoding="utf-8")
    return path


@pytest.fixture
def s3_environment(
    request: pytest.FixtureRequest,
    s3_endpoint: str,
    one_certificate: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    """Set AWS settings that lead to the server and nowhere else, and yield the endpoint.

    After the test, the fixture reports the requests that the server recorded.
    """
    for name in list(os.environ):
        if name.startswith(("AWS_", "SEGLOG_")):
            monkeypatch.delenv(name)
    settings = {
        "AWS_ENDPOINT_URL": s3_endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "no-aws-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "no-aws-credentials"),
        "SSL_CERT_FILE": str(one_certificate),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    yield s3_endpoint
    report_requests(s3_endpoint, request.node.nodeid)


@pytest.fixture(scope="session")
def s3_client(s3_endpoint: str) -> Iterator[Any]:
    """A client of boto3 that all tests share, because making one costs more than a request.

    It is for what a test does itself: the recorder lets it leave the prefix of a store.
    """
    session = boto3.Session(**AS_HARNESS, region_name=REGION)
    with closing(session.client("s3", endpoint_url=s3_endpoint)) as client:
        yield client


@pytest.fixture
def s3_remote(s3_environment: str, s3_client: Any) -> str:
    """Return `s3://bucket/prefix` in a bucket of the test's own."""
    bucket = f"test-{uuid.uuid4().hex[:12]}"
    s3_client.create_bucket(Bucket=bucket)
    return f"s3://{bucket}/acme"


def empty_remote(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a remote of the kind that the fixture `request` has as its parameter, `file` or `s3`."""
    if request.param == "s3":
        return str(request.getfixturevalue("s3_remote"))
    return (tmp_path / "remote").as_uri()


class _WritesTakeTurns:
    """Execute one write at a time. Otherwise any write could come between the check of another and its effect."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        is_part = "partNumber" in parse_qs(environ["QUERY_STRING"])
        if environ["REQUEST_METHOD"] not in {"DELETE", "POST", "PUT"} or is_part:
            return self._app(environ, start_response)
        # Read the whole body before taking the lock, so that no request waits for a slow client.
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        with self._turn:
            return self._app(environ, start_response)


def _name_uploads_that_are_gone() -> None:
    from moto.s3.exceptions import NoSuchUpload
    from moto.s3.models import S3Backend

    def mended(method: Any) -> Any:
        def call(self: Any, bucket_name: str, multipart_id: str, *args: Any, **named: Any) -> Any:
            if multipart_id not in self.get_bucket(bucket_name).multiparts:
                raise NoSuchUpload(multipart_id)
            return method(self, bucket_name, multipart_id, *args, **named)

        return call

    for name in ("upload_part", "complete_multipart_upload"):
        setattr(S3Backend, name, mended(getattr(S3Backend, name)))


class _Checksummed:
    """Compare the checksum of a PUT or POST with its bytes, and return the checksum in the answer.

    The bytes of a completion are those of its parts.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        query = parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
        sent = [kind for kind in ChecksumKind if f"HTTP_X_AMZ_CHECKSUM_{kind.upper()}" in environ]
        is_part = "partNumber" in query
        if not sent or environ["REQUEST_METHOD"] not in {"PUT", "POST"}:
            return self._app(environ, start_response)
        [kind] = sent
        text = environ[f"HTTP_X_AMZ_CHECKSUM_{kind.upper()}"]
        if environ["REQUEST_METHOD"] == "PUT" or "delete" in query:
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(body)
        else:
            body = _body_of_upload(environ["PATH_INFO"], query["uploadId"][0])
        if body is not None and str(Checksum.of(kind, body)) != text:
            answer = b"<Error><Code>BadDigest</Code><Message>not what was sent</Message></Error>"
            start_response("400 Bad Request", [("Content-Length", str(len(answer)))])
            return [answer]

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            said = [] if is_part else [("x-amz-checksum-type", "FULL_OBJECT")]
            headers = [pair for pair in headers if not pair[0].lower().startswith("x-amz-checksum")]
            return start_response(status, [*headers, (f"x-amz-checksum-{kind}", text), *said], *more)

        return self._app(environ, start)


def _body_of_upload(path: str, upload_id: str) -> bytes | None:
    from moto.s3.models import s3_backends

    bucket = path.split("/")[1]
    for account in s3_backends.values():
        for backend in account.values():
            uploads = backend.buckets[bucket].multiparts if bucket in backend.buckets else {}
            if upload_id in uploads:
                return b"".join(part.value for _, part in sorted(uploads[upload_id].parts.items()))
    return None


def _compute_every_checksum() -> None:
    """Replace moto's checksums. Unless an optional package is installed, moto computes a CRC32 in place of a CRC32C."""
    from moto.s3 import models

    computed = models.compute_checksum

    def compute(body: bytes, algorithm: str, encode_base64: bool = True) -> bytes:
        if algorithm.lower() not in set(ChecksumKind):
            return computed(body, algorithm, encode_base64)
        text = str(Checksum.of(ChecksumKind(algorithm.lower()), body)).encode()
        return text if encode_base64 else base64.b64decode(text)

    models.compute_checksum = compute


def _serve() -> None:
    from moto import backends
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):  # type: ignore[misc]
        def log_request(self, *_: object) -> None:
            pass

    _name_uploads_that_are_gone()
    _compute_every_checksum()
    modules = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: modules  # moto lists its folders at each request
    app = Recorder(_Checksummed(_WritesTakeTurns(DomainDispatcherApplication(create_backend_app))))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    gc.collect()
    gc.freeze()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
