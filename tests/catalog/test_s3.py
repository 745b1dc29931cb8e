"""S3Store alone: each refusal and each failure on the wire becomes an error that tells the caller what to do."""

from __future__ import annotations

import base64
import contextlib
import gc
import hashlib
import socket
import ssl
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

import boto3
import pytest
from botocore.credentials import Credentials
from botocore.response import StreamingBody

from catalog.errors import (
    AccessDenied,
    InvalidKey,
    InvalidRemote,
    KeyChanged,
    KeyTaken,
    NoSuchBucket,
    NoSuchObject,
    NotOffered,
    OutcomeUnknown,
    StoreUnreachable,
)
from catalog.format.checksum import Checksum, ChecksumKind
from catalog.format.keys import Key
from catalog.objects import PartTag, s3, s3_reads
from catalog.objects.s3 import ReadSettings, S3Store
from catalog.objects.store_timeout import one_command
from tests.faults.front import Front, HttpFault
from tests.faults.scripted_s3 import BREAKS_OFF, ScriptedS3
from tests.s3_server import not_of_minio
from tests.seams.catalog import client_of, prefix_of, reads_config_of, reads_of

A = Key("vol/log/A")
Reader = Literal["obstore", "boto3"]


@pytest.fixture
def script(s3_environment: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedS3]:
    server = ScriptedS3()
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setattr(s3, "ATTEMPTS", 2)
    yield server
    server.close()


@pytest.fixture(params=["obstore", pytest.param("boto3", marks=pytest.mark.long)])
def reader(request: pytest.FixtureRequest) -> Reader:
    return request.param  # type: ignore[no-any-return]


@contextlib.contextmanager
def opened(
    url: str = "s3://bucket/acme", reader: Reader = "obstore", reads: ReadSettings | None = None
) -> Iterator[S3Store]:
    store = S3Store(url, reader=reader, reads=reads)
    yield store
    store.close()


def put_new(store: S3Store) -> None:
    store.put_new(A, b"body")


def swap(store: S3Store) -> None:
    store.swap(A, b"body", '"etag"')


def complete(store: S3Store) -> None:
    store.complete_upload(A, "upload", [PartTag(1, "etag", 4, Checksum(ChecksumKind.CRC32C, 0))])


# ---------------------------------------------------------------- writes and their answers (BUCKET-1, BUCKET-2)


@pytest.mark.parametrize(
    "answer",
    [(500, "InternalError"), (503, "SlowDown"), (409, "ConditionalRequestConflict"), (400, "RequestTimeout"), None],
)
@pytest.mark.parametrize("write", [put_new, swap, complete])
def test_an_answer_that_leaves_the_outcome_open_says_so_after_one_request(
    script: ScriptedS3, write: Callable[[S3Store], None], answer: tuple[int, str] | None
) -> None:
    script.answers = [answer]
    with opened() as store, pytest.raises(OutcomeUnknown):
        write(store)
    assert len(script.asked) == 1


@pytest.mark.parametrize(
    ("write", "answer", "error"),
    [
        (put_new, (412, "PreconditionFailed"), KeyTaken),
        (swap, (412, "PreconditionFailed"), KeyChanged),
        (swap, (404, "NoSuchKey"), KeyChanged),
    ],
)
def test_a_condition_that_is_not_met_says_so_after_one_request(
    script: ScriptedS3, write: Callable[[S3Store], None], answer: tuple[int, str], error: type[Exception]
) -> None:
    script.answers = [answer]
    with opened() as store, pytest.raises(error):
        write(store)
    assert len(script.asked) == 1


@pytest.mark.parametrize("write", [put_new, swap])
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((403, "AccessDenied"), AccessDenied),
        ((403, "SignatureDoesNotMatch"), AccessDenied),
        ((400, "ExpiredToken"), AccessDenied),
        ((404, "NoSuchBucket"), NoSuchBucket),
        ((501, "NotImplemented"), NotOffered),
        ((400, "InvalidStorageClass"), NotOffered),
        ((400, "InvalidRequest"), StoreUnreachable),
    ],
)
def test_a_definite_refusal_is_not_an_open_outcome(
    script: ScriptedS3, write: Callable[[S3Store], None], answer: tuple[int, str], error: type[Exception]
) -> None:
    script.answers = [answer]
    with opened() as store, pytest.raises(error) as raised:
        write(store)
    assert not isinstance(raised.value, OutcomeUnknown)
    assert len(script.asked) == 1


def test_a_412_to_a_request_without_a_condition_is_no_taken_key(script: ScriptedS3) -> None:
    script.answers = [(412, "PreconditionFailed")]
    with opened() as store:
        with pytest.raises(OutcomeUnknown):
            complete(store)
        for write in (
            lambda: store.put(A, b"body", {}),
            lambda: store.create_upload(A, {}),
            lambda: store.put_part(A, "upload", 1, b"part"),
        ):
            with pytest.raises(StoreUnreachable, match="PreconditionFailed"):
                write()


def test_a_tag_comes_with_its_body_and_a_store_without_tags_is_told(s3_remote: str, reader: Reader) -> None:
    with opened(s3_remote, reader) as store:
        store.put_new(A, b"body")
        found = store.get_with_etag(A)
        assert found.body == b"body"
        store.swap(A, b"next", found.etag)
        for stale in (found.etag, found.etag.strip('"')):
            with pytest.raises(KeyChanged):
                store.swap(A, b"late", stale)
        assert store.get(A) == b"next"


def test_a_store_that_gives_no_tag_is_told_where_one_is_needed(s3_remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(s3_remote, "boto3") as store:
        store.put_new(A, b"body")
        real = client_of(store).get_object
        monkeypatch.setattr(
            client_of(store), "get_object", lambda **asked: {k: v for k, v in real(**asked).items() if k != "ETag"}
        )
        assert store.get(A) == b"body"
        with pytest.raises(StoreUnreachable, match="no ETag"):
            store.get_with_etag(A)


def test_reads_are_repeated_until_they_are_answered(script: ScriptedS3, reader: Reader) -> None:
    script.answers = [(500, "InternalError"), (404, "NoSuchKey")]
    with opened(reader=reader) as store, pytest.raises(NoSuchObject):
        store.get(A)
    assert len(script.asked) == 2


@pytest.mark.parametrize("answer", [(500, "InternalError"), None])
def test_trouble_while_reading_is_never_taken_for_absence(
    script: ScriptedS3, reader: Reader, answer: tuple[int, str] | None
) -> None:
    script.answers = [answer]
    with opened(reader=reader) as store:
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
    with opened(s3_remote, reader="boto3") as store:
        store.put_new(A, b"body")
        real = client_of(store).get_object
        tries = []

        def cut_off(**request: object) -> dict[str, object]:
            answer: dict[str, object] = real(**request)
            tries.append(request)
            if len(tries) == 1:
                answer["Body"] = StreamingBody(answer["Body"], 5)
            return answer

        monkeypatch.setattr(client_of(store), "get_object", cut_off)
        assert store.get(A) == b"body"
        assert len(tries) == 2


def get(store: S3Store) -> bytes:
    return store.get(A)


def get_range(store: S3Store) -> bytes:
    return store.get_range(A, 0, 4)


@pytest.mark.parametrize(("reader", "read"), [("obstore", get), ("obstore", get_range), ("boto3", get_range)])
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((404, "NoSuchKey"), NoSuchObject),
        ((404, "NoSuchBucket"), NoSuchBucket),
        ((404, ""), StoreUnreachable),
        ((404, "NoSuchThing"), StoreUnreachable),
        ((403, "AccessDenied"), AccessDenied),
        ((403, "InvalidAccessKeyId"), AccessDenied),
        ((403, ""), AccessDenied),
        ((401, "Unauthorized"), AccessDenied),
        ((400, "ExpiredToken"), AccessDenied),
        ((403, "RequestTimeTooSkewed"), AccessDenied),
        ((400, "KeyTooLongError"), InvalidKey),
        ((400, "InvalidRequest"), StoreUnreachable),
        ((503, "SlowDown"), StoreUnreachable),
        (BREAKS_OFF, StoreUnreachable),
        (None, StoreUnreachable),
    ],
)
def test_a_refused_read_is_the_same_error_from_either_client(
    script: ScriptedS3,
    reader: Reader,
    read: Callable[[S3Store], bytes],
    answer: tuple[int, str] | None,
    error: type[Exception],
) -> None:
    script.answers = [answer]
    with opened(reader=reader) as store, pytest.raises(error):
        read(store)


def test_a_range_that_breaks_off_is_asked_for_again(script: ScriptedS3, reader: Reader) -> None:
    script.answers = [BREAKS_OFF, (404, "NoSuchKey")]
    with opened(reader=reader) as store, pytest.raises(NoSuchObject):
        store.get_range(A, 0, 4)
    assert script.asked == ["GET /bucket/acme/vol/log/A"] * 2


def test_a_read_that_is_not_answered_in_time_is_repeated_and_then_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with opened(reads=ReadSettings(timeout_s=0.6, attempts=3)) as store, pytest.raises(StoreUnreachable):
            store.get_range(A, 0, 4)
        silent.settimeout(10)
        for _ in range(3):
            connection, _ = silent.accept()
            assert connection.recv(4) == b"GET "
            connection.close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_a_bucket_in_another_region_is_left_to_boto3(script: ScriptedS3) -> None:
    for answer in ((301, "PermanentRedirect"), (301, ""), (400, "AuthorizationHeaderMalformed")):
        script.answers = [answer, (404, "NoSuchKey")]
        with opened() as store:
            for _ in range(2):
                with pytest.raises(NoSuchObject):
                    store.get(A)
            assert reads_of(store) is None


# ---------------------------------------------------------------- deletes of many keys (BUCKET-5)


class Deletions:
    """Records the calls of `delete_objects`, and answers each with `errors` instead of calling the store."""

    def __init__(self, store: S3Store, monkeypatch: pytest.MonkeyPatch, errors: list[dict[str, str]]) -> None:
        self.asked: list[list[str]] = []

        def call(**request: Any) -> dict[str, Any]:
            self.asked.append([each["Key"] for each in request["Delete"]["Objects"]])
            return {"Errors": errors}

        monkeypatch.setattr(client_of(store), "delete_objects", call)


def test_many_are_deleted_in_requests_of_a_thousand(s3_remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [Key(f"vol/log/{number:04d}") for number in range(2001)]
    with opened(s3_remote) as store:
        calls = Deletions(store, monkeypatch, [])
        store.delete_many([])
        assert calls.asked == []
        store.delete_many(keys)
    assert [len(asked) for asked in calls.asked] == [1000, 1000, 1]
    assert [key for asked in calls.asked for key in asked] == [f"acme/{key}" for key in keys]


@pytest.mark.parametrize(
    ("code", "error"),
    [("AccessDenied", AccessDenied), ("InternalError", StoreUnreachable), ("SlowDown", StoreUnreachable)],
)
def test_an_error_inside_the_answer_to_a_delete_of_many_is_raised(
    s3_remote: str, monkeypatch: pytest.MonkeyPatch, code: str, error: type[Exception]
) -> None:
    with opened(s3_remote) as store:
        Deletions(
            store,
            monkeypatch,
            [{"Key": "acme/a", "Code": "NoSuchKey"}, {"Key": f"acme/{A}", "Code": code, "Message": "no"}],
        )
        with pytest.raises(error, match=f"{code}: no .deleting {A}"):
            store.delete_many([Key("a"), A])


def test_an_error_in_place_of_the_answer_to_a_delete_of_many_is_no_success(script: ScriptedS3) -> None:
    for answer, error in (
        ((200, "InternalError"), StoreUnreachable),
        ((403, "AccessDenied"), AccessDenied),
        ((404, "NoSuchBucket"), NoSuchBucket),
        ((503, "SlowDown"), StoreUnreachable),
    ):
        script.answers = [answer]
        with opened() as store, pytest.raises(error):
            store.delete_many([A])


def test_a_store_without_deletes_of_many_gets_them_one_by_one(script: ScriptedS3) -> None:
    script.answers = [(501, "NotImplemented"), (204, "")]
    with opened() as store:
        store.delete_many([A, Key("b")])
    assert script.asked == ["POST /bucket?delete", "DELETE /bucket/acme/vol/log/A", "DELETE /bucket/acme/b"]


def test_a_delete_of_many_carries_a_crc32_and_an_md5(script: ScriptedS3) -> None:
    script.answers = [(200, "")]
    with opened() as store:
        store.delete_many([A])
    [headers] = script.headers
    assert headers["Content-MD5"] == base64.b64encode(hashlib.md5(script.bodies[0]).digest()).decode()  # noqa: S324
    assert headers["x-amz-checksum-crc32"] == str(Checksum.of(ChecksumKind.CRC32, script.bodies[0]))


# ---------------------------------------------------------------- prefixes, checksums of parts (BUCKET-3, BUCKET-4)


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
        real = client_of(store).list_objects_v2
        requests: list[dict[str, object]] = []

        def small_pages(**request: object) -> object:
            requests.append(dict(request))
            return real(**{"MaxKeys": 2, **request})

        monkeypatch.setattr(client_of(store), "list_objects_v2", small_pages)
        assert list(store.list("t/")) == ["t/a", "t/b", "t/c", "t/d", "t/e"]
        assert len(requests) == 3
        requests.clear()
        assert list(store.list("t/", limit=2)) == ["t/a", "t/b"]
        assert len(requests) == 1
        requests.clear()
        assert list(store.list("t/", limit=2, start_after="t/b")) == ["t/c", "t/d"]
        assert len(requests) == 1
        assert requests[0]["StartAfter"] == "acme/t/b"
        assert list(store.list("t/", start_after="t/b")) == ["t/c", "t/d", "t/e"]
        assert all(request["Prefix"] == "acme/t/" for request in requests)
        requests.clear()
        assert next(store.list("t/")) == "t/a"  # the store requests the next pages only when the caller wants them
        assert len(requests) == 1


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
    s3_environment: str, monkeypatch: pytest.MonkeyPatch, reader: Reader
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with opened(reader=reader) as store:
        for call in (lambda: store.get(A), lambda: store.put_new(A, b"")):
            with pytest.raises(AccessDenied, match="no AWS credentials found") as raised:
                call()
            assert "AWS_ACCESS_KEY_ID" in str(raised.value.hint)


def test_wrong_credentials_are_denied(script: ScriptedS3, reader: Reader) -> None:
    script.answers = [(403, "InvalidAccessKeyId")]
    with opened(reader=reader) as store:
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
        assert prefix_of(store) == base
        assert store.url == url.rstrip("/")


@not_of_minio
def test_a_session_brings_its_own_credentials(s3_remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = boto3.Session(aws_access_key_id="tenant", aws_secret_access_key="secret", region_name="us-east-1")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    store = S3Store(s3_remote, session)
    store.put_new(A, b"one")
    assert store.get(A) == b"one"
    store.close()


def test_credentials_that_the_session_refreshed_are_used(script: ScriptedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_reads, "CREDENTIALS_TTL", timedelta(seconds=0))
    session = boto3.Session(region_name="us-east-1")
    names = iter(["first", "second"])
    monkeypatch.setattr(session, "get_credentials", lambda: Credentials(next(names), "secret", "token"))
    script.answers = [(404, "NoSuchKey")]
    store = S3Store("s3://bucket/acme", session)
    script.authorizations.clear()
    for _ in range(2):
        with pytest.raises(NoSuchObject):
            store.get(A)
    store.close()
    assert ["first" in script.authorizations[0], "second" in script.authorizations[1]] == [True, True]


@not_of_minio
def test_a_profile_gives_endpoint_and_credentials(
    s3_remote: str, s3_environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(
        f"[profile mine]\nregion = us-east-1\nendpoint_url = {s3_environment}\n"
        "aws_access_key_id = of-the-profile\naws_secret_access_key = secret\n"
    )
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    with opened(s3_remote) as store:
        store.put_new(A, b"body")
        assert store.get_range(A, 1, 2) == b"od"


def test_a_prefix_with_any_character_that_is_allowed_is_read_where_it_was_written(s3_remote: str) -> None:
    with opened(f"{s3_remote}/A_b.c-d/0") as store:
        store.put_new(Key("t/x.y_z-1"), b"body")
        assert store.get(Key("t/x.y_z-1")) == b"body"
        assert store.get_range(Key("t/x.y_z-1"), 1, 2) == b"od"


@pytest.mark.parametrize(
    ("endpoint", "bucket", "asked"),
    [
        (None, "bucket", "https://bucket.s3.eu-west-1.amazonaws.com"),
        (None, "bucket.with.dots", "https://s3.eu-west-1.amazonaws.com"),
        ("https://store.example/s3", "bucket", "https://store.example/s3"),
    ],
)
def test_aws_is_asked_by_the_buckets_name_and_other_stores_by_path(
    s3_environment: str, monkeypatch: pytest.MonkeyPatch, endpoint: str | None, bucket: str, asked: str
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    if endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with opened(f"s3://{bucket}/acme") as store:
        config = reads_config_of(store)
        assert config["endpoint"] == asked
        assert config["region"] == "eu-west-1"
        is_by_name = asked.startswith("https://bucket.s3")
        assert str(config["virtual_hosted_style_request"]).lower() == str(is_by_name).lower()


def _certificates(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return the file of our own certificate authority, and a server context with its certificate for 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("authority", "server")]
    now = datetime.now(UTC)
    made = []
    for is_server in (False, True):
        builder = (
            x509.CertificateBuilder()
            .subject_name(names[is_server])
            .issuer_name(names[0])
            .public_key(keys[is_server].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=not is_server, path_length=None), critical=True)
        )
        if is_server:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
            )
        made.append(builder.sign(keys[0], hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    key = keys[1].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "authority.pem").write_bytes(made[0])
    (folder / "server.pem").write_bytes(made[1] + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return folder / "authority.pem", context


def test_the_ca_bundle_of_the_environment_is_trusted(
    s3_environment: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority, context = _certificates(tmp_path)
    server = ScriptedS3(context)
    server.answers = [(404, "NoSuchKey")]
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    with opened(reads=ReadSettings(attempts=1)) as store, pytest.raises(StoreUnreachable):
        store.get(A)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority))
    with opened() as store, pytest.raises(NoSuchObject):
        store.get(A)
    server.close()
    assert len(server.asked) == 1
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "missing"))
    with pytest.raises(InvalidRemote):
        S3Store("s3://bucket/acme")


def test_a_store_that_nobody_has_any_more_lets_its_session_go() -> None:
    session = boto3.Session("key", "secret", region_name="us-east-1")
    seen = weakref.ref(session)
    store = S3Store("s3://bucket", session)
    store.close()
    del store, session
    gc.collect()
    assert seen() is None


def test_the_error_of_a_dead_endpoint_is_one_line_of_ours(s3_environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with opened(reads=ReadSettings(attempts=2)) as store, pytest.raises(StoreUnreachable) as raised:
        store.get(A)
    assert "Connection refused, after 2 tries" in str(raised.value)
    assert not {"Generic", "max_retries", "\n"} & {*str(raised.value).split(" ")}


@pytest.mark.parametrize("way", ["timeout", "drip"])
def test_the_requests_of_a_command_share_one_limit_beside_a_silent_store(
    s3_remote: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, reader: Reader, way: str
) -> None:
    with Front(s3_endpoint, [HttpFault(way, "after" if way == "drip" else "before", lasts=True)]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        with opened(s3_remote, reader) as store, one_command(1):
            for ask in (lambda: store.get(A), lambda: [*store.list("")], lambda: store.head(A)):
                with pytest.raises(StoreUnreachable):
                    ask()
            asked = len(front.struck)
            with pytest.raises(StoreUnreachable, match="for 1 s"):  # not `OutcomeUnknown`: it was never sent
                store.put_new(A, b"")
            assert len(front.struck) == asked
    assert asked <= 2
