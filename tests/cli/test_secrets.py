"""No secret shows outside of the process. Canaries are the secret key, the session token and the daemon's tokens.

The test searches what a user, a log, a metric or a file can show. It also runs stores that fail. One of them sends the
headers of each request back in its errors, as S3 does with a wrong signature or token. A control shows that the search
finds the canary in the debug logs of the AWS library, if nothing filters them.
"""

from __future__ import annotations

import http.client
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Collection
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest

from catalog.objects import s3
from offload.token_rights import Role, token_line
from tests.answering import Answer, AnsweringServer, Asked
from tests.faults.front import Front
from tests.s3_server import AS_HARNESS, MINIO, may_be_checked
from tests.seams.limits import Limit, set_limit
from tests.waiting import wait_until
from tests.worlds.command import Run

ROOT = Path(__file__).parents[2]
SECRET = "CanarySecretKey0123456789abcdefCanary"
SESSION = "CanarySessionToken//0123456789+abcdef=="
TOKEN = "CanaryTokenOfTheDaemon0123456789"
WRONG = "CanaryWrongTokenOfAClient0123456789"
GRANTED = ("CanaryGrantedSecret0123456789abcdef", "CanaryGrantedToken//0123456789+abc==")  # that STS gives a tenant
CANARIES = (SECRET, SESSION, TOKEN, WRONG, *GRANTED)
ROLE = "arn:aws:iam::111122223333:role/tenants"
SIGNATURES = re.compile(rb"X-Amz-Signature=|X-Amz-Security-Token=|Signature=[0-9a-f]{16}|AWS4-HMAC-SHA256\W")
DEAD = "http://127.0.0.1:9"


class Search:
    """The places that were searched, with their bytes, and the places of a hit."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.hits: list[str] = []

    def look(self, place: str, text: str | bytes, allowed: Collection[str] = ()) -> None:
        """Search a text. `allowed` are canaries that the place must have."""
        body = text.encode(errors="surrogateescape") if isinstance(text, str) else text
        self.places[place] = self.places.get(place, 0) + len(body)
        self.hits += [f"{place}: {each}" for each in CANARIES if (each.encode() in body) != (each in allowed)]
        self.hits += [f"{place}: a signature"] * bool(SIGNATURES.search(body))

    def report(self) -> None:
        for place, size in self.places.items():
            print(f"searched {place}: {size:,} bytes")
        print(f"places {len(self.places)}, hits {len(self.hits)}")


def echoing(*, is_signature: bool = True, is_plain: bool = False) -> AnsweringServer:
    """Run a server whose errors have the headers of the request, as those of S3 with a wrong signature or token.

    With `is_plain`, it is as a proxy between that is no S3.
    """
    code, status = ("SignatureDoesNotMatch", 403) if is_signature else ("InvalidToken", 400)

    def decide(asked: Asked) -> Answer:
        told = "".join(f"{name}:{text}\n" for name, text in asked.headers.items())
        body = (
            f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>it does not match</Message>"
            f"<Token-0>{asked.headers.get('x-amz-security-token')}</Token-0>"
            f"<CanonicalRequest>{told}</CanonicalRequest></Error>"
        )
        return Answer(status, (told if is_plain else body).encode())

    return AnsweringServer(decide)


def granting(search: Search) -> AnsweringServer:
    """Run an STS that gives the canaries. At each request, it searches the list of processes."""

    def decide(_: Asked) -> Answer:
        look_at_processes(search)
        ends = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        found = f"<AccessKeyId>ASIACANARY</AccessKeyId><SecretAccessKey>{GRANTED[0]}</SecretAccessKey>"
        found += f"<SessionToken>{GRANTED[1]}</SessionToken><Expiration>{ends}</Expiration>"
        body = (
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>'
            f"<Credentials>{found}</Credentials></AssumeRoleResult></AssumeRoleResponse>"
        )
        return Answer(200, body.encode(), {"Content-Type": "text/xml"})

    return AnsweringServer(decide)


def look_at_processes(search: Search) -> None:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            search.look("command lines of all processes", path.read_bytes())


@pytest.fixture
def search() -> Search:
    return Search()


@pytest.fixture
def canary(s3_remote: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a remote. The AWS environment has the canaries."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    return s3_remote


def look_at_commands(run: Run, search: Search, place: str, *commands: str, is_plain: bool = True) -> list[int]:
    """Run each command with `--debug`, as JSON and with `is_plain` as text too. Return the exit codes."""
    codes = []
    for words in commands:
        for options in (("--debug", "--json"), *([("--debug",)] if is_plain else [])):
            done = run(*options, *words.split(), stdin=b"a line\n")
            search.look(f"{place}, standard output", done.out)
            search.look(f"{place}, standard error", done.err)
            codes.append(done.code)
    return codes


def look_at_files(search: Search, directory: Path) -> None:
    for path in [directory, *directory.rglob("*")]:
        mode = path.lstat().st_mode & 0o777
        if mode & 0o077:
            search.hits.append(f"{path} has mode {mode:o}")
        if path.is_file():
            search.look("files of the data directory", path.read_bytes())


@pytest.mark.long
def test_commands_show_no_secret_also_when_the_store_fails(
    run: Run, canary: str, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = (f"init --remote {canary}", "append t", "seal t", "offload t --drop-hot", "read t", "status", "log t",
             "cost", "gc --dry-run", "branch create t b", "verify --remote", "show t lsn:1")  # fmt: skip
    if not MINIO:
        set_limit(monkeypatch, Limit.PART_OF_A_CHECK, bytes(range(256)) * 4)
    codes = look_at_commands(run, search, "commands", *works)
    codes += look_at_commands(run, search, "commands", "doctor", is_plain=False)
    assert codes.count(0) >= len(codes) - 5, codes
    assert run("append", "t", stdin=b"not offloaded yet").code == 0
    fails = ("offload t", "read t", "doctor", f"--remote {canary} tenant delete acme --yes")
    monkeypatch.setenv("SEGLOG_COLD_GET_ATTEMPTS", "1")
    monkeypatch.setattr(s3, "ATTEMPTS", 2)  # one repetition, because the SDK waits before each
    endpoints = {"a dead endpoint": DEAD}
    with (
        echoing() as signature,
        echoing(is_signature=False) as token,
        echoing(is_plain=True) as plain,
    ):
        endpoints |= {"a store that refuses the signature": signature.url, "a store that refuses the token": token.url}
        endpoints |= {"a proxy that echoes headers": plain.url}
        for place, endpoint in endpoints.items():
            monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
            codes = look_at_commands(run, search, place, *fails, is_plain=endpoint == DEAD)
            assert sum(code != 0 for code in codes) >= len(codes) - 1, (place, codes)
    look_at_files(search, tmp_path / "data")
    search.report()
    assert search.hits == []


def test_the_bucket_has_no_secret(run: Run, canary: str, search: Search) -> None:
    look_at_commands(run, search, "commands", f"init --remote {canary}", "append t", "seal t", "offload t")
    bucket = canary.split("/")[2]
    with closing(boto3.client("s3", **AS_HARNESS)) as client:
        for each in client.list_objects_v2(Bucket=bucket)["Contents"]:
            found = client.get_object(Bucket=bucket, Key=each["Key"])
            search.look("objects", found["Body"].read() + repr(found["Metadata"]).encode())
    assert search.places["objects"] > 100
    search.report()
    assert search.hits == []


@pytest.mark.long
def test_the_daemon_shows_no_secret(canary: str, run: Run, search: Search, tmp_path: Path) -> None:
    assert run("init", "--remote", canary).code == 0
    (tmp_path / "tokens").touch(0o600)
    (tmp_path / "tokens").write_text(token_line("ci", Role.ADMIN, "*", TOKEN) + "\n")
    with echoing() as refusing:
        for endpoint in (os.environ["AWS_ENDPOINT_URL"], refusing.url):
            lines = _life_of_a_daemon(tmp_path, endpoint, search)
            search.look("log of the daemon", "".join(lines))
            assert any("request" in line for line in lines)
    look_at_files(search, tmp_path / "data")
    search.report()
    assert search.hits == []


@pytest.mark.long
def test_credentials_of_a_tenant_are_on_standard_output_and_nowhere_else(
    run: Run, canary: str, s3_endpoint: str, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_tenant(run, canary, tmp_path)
    may_be_checked(s3_endpoint, canary.split("/")[2])
    words = ("tenant", "credentials", "acme", "--role", "reader")
    with granting(search) as sts, Front(s3_endpoint, seen=lambda *_: look_at_processes(search)) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        command = [sys.executable, "-m", "offload", "-C", str(tmp_path / "data"), "--debug", *words]
        process = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        search.look("tenant credentials, standard output", process.stdout, allowed=GRANTED)
        search.look("tenant credentials, standard error", process.stderr)
        for options in ((), ("--debug", "--json")):
            done = run(*options, *words)
            assert done.code == 0, done.err
            search.look("tenant credentials, standard output", done.out, allowed=GRANTED)
            search.look("tenant credentials, standard error", done.err)
        codes = look_at_commands(run, search, "tenant check", "tenant check acme")
        assert codes == [1, 1], "moto lists the whole bucket"
        assert front.access_keys == {"ASIACANARY": 4}
    for place, is_signature in (("an STS that refuses the signature", True), ("an STS that refuses the token", False)):
        with echoing(is_signature=is_signature) as refusing:
            monkeypatch.setenv("AWS_ENDPOINT_URL_STS", refusing.url)
            assert 0 not in look_at_commands(run, search, place, " ".join(words), "tenant check acme")
    look_at_files(search, tmp_path / "data")
    search.report()
    assert search.hits == []


def own_tenant(run: Run, remote: str, tmp_path: Path) -> None:
    """Make the data directory of a tenant with a role."""
    assert run("init", "--remote", remote).code == 0
    text = f'[remote]\nurl = "{remote}"\n[tenant]\nname = "acme"\nrole_arn = "{ROLE}"\n'
    (tmp_path / "data" / "seglog.toml").write_text(text)


@pytest.mark.long
def test_the_daemon_of_a_tenant_shows_no_secret(
    run: Run, canary: str, s3_endpoint: str, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_tenant(run, canary, tmp_path)
    may_be_checked(s3_endpoint, canary.split("/")[2])
    (tmp_path / "tokens").touch(0o600)
    (tmp_path / "tokens").write_text(token_line("ci", Role.ADMIN, "*", TOKEN) + "\n")
    with granting(search) as sts, Front(s3_endpoint, seen=lambda *_: look_at_processes(search)) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        lines = _life_of_a_daemon(tmp_path, front.url, search, searches_environment=True)
        assert front.access_keys["ASIACANARY"] == front.access_keys.total() > 5
    search.look("log of the daemon", "".join(lines))
    assert search.places["environment of the upload process"] > 100
    look_at_files(search, tmp_path / "data")
    search.report()
    assert search.hits == []


def _life_of_a_daemon(
    tmp_path: Path, endpoint: str, search: Search, *, searches_environment: bool = False
) -> list[str]:
    """Run a daemon with debug logs, ask it, and search its answers. Return the lines of its log.

    With `searches_environment`, search the environment of its child too.
    """
    variables = {
        "SEGLOG_SERVE_PORT": "0", "SEGLOG_SERVE_TOKEN_FILE": str(tmp_path / "tokens"),
        "SEGLOG_SERVE_ACCESS_LOG": "true",
        "SEGLOG_SERVE_CHECK_INTERVAL_MS": "50", "SEGLOG_OFFLOAD_OFFLOAD_AFTER_S": "0", "AWS_ENDPOINT_URL": endpoint,
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "offload", "--debug", "-C", str(tmp_path / "data"), "serve"],
        env={**os.environ, **variables}, cwd=ROOT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines: list[str] = []
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: lines.extend(process.stderr))  # type: ignore[arg-type]
    reader.start()
    try:
        wait_until(lambda: any("seglog: serving" in line and "http" in line for line in lines))
        [port] = re.findall(r"http://127\.0\.0\.1:(\d+)", "".join(lines))
        for token in (TOKEN, WRONG):
            _ask(search, int(port), token)
        for number, path in enumerate(_processes_of(process.pid)):
            search.look("/proc/PID/cmdline", path.read_bytes())
            if searches_environment and number:
                search.look("environment of the upload process", path.with_name("environ").read_bytes())
    finally:
        process.terminate()
        process.wait(60)
        reader.join()
        process.stderr.close()
    return lines


def _ask(search: Search, port: int, token: str) -> None:
    asked = [
        ("POST", "/topics/t/records"), ("POST", "/rpc/seal"), ("POST", "/rpc/offload"), ("POST", "/rpc/status"),
        ("GET", "/metrics"), ("GET", "/topics/t/records"), ("GET", f"/topics?token={token}"), ("GET", "/rpc/nothing"),
        ("GET", "/openapi.json"), ("GET", "/daemon/events"),
    ]  # fmt: skip
    for method, path in asked:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            is_rpc = path.startswith("/rpc/")
            kind = "application/json" if is_rpc else "application/octet-stream"
            body = (b"{}" if path == "/rpc/status" else b'{"topic": "t"}') if is_rpc else b"value"
            headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
            connection.request(method, path, body if method == "POST" else None, headers)
            answer = connection.getresponse()
            told = "".join(f"{name}: {text}\n" for name, text in answer.getheaders())
            # A stream of events has no end.
            found = answer.read1(65_536) if path == "/daemon/events" and answer.status == 200 else answer.read()
            search.look(f"{method} {path.partition('?')[0]}", told.encode() + found)


def _processes_of(pid: int) -> list[Path]:
    children = [each for path in Path(f"/proc/{pid}/task").glob("*/children") for each in path.read_text().split()]
    return [Path(f"/proc/{each}/cmdline") for each in (pid, *children)]


_LOGS = """
import logging, sys
if sys.argv[1] == "filtered":
    from offload.daemon.logs import set_up_logs
    set_up_logs("text", debug=True)
    for name in ("botocore", "boto3", "urllib3", "botocore.auth", "aiobotocore"):
        logging.getLogger(name).setLevel(logging.DEBUG)
else:
    logging.basicConfig(level=logging.DEBUG)
"""
_PUT = """
from offload.wiring import open_store
store = open_store(sys.argv[2])
store.put_new("refs/t/main", b"x")
store.get("refs/t/main")
"""
_ASSUME = """
import asyncio
from offload.tenants.sts_request import TenantAccess
from offload.tenants.bucket_check import check_bucket
from offload.tenants.credentials import Refresher, assume_role
access = TenantAccess("acme", "arn:aws:iam::111122223333:role/tenants", 900)
assume_role(access)
async def ask():
    refresher = Refresher()
    found = await asyncio.to_thread(refresher.add(access).current)
    await check_bucket(sys.argv[2], found)
    await refresher.close()
asyncio.run(ask())
"""
_END = """
logging.getLogger("seglog.test").debug("the end")
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "program", [pytest.param(_PUT, marks=pytest.mark.long, id="put"), pytest.param(_ASSUME, id="assume")]
)
@pytest.mark.parametrize("way", ["filtered", "unfiltered"])
def test_debug_logs_of_the_aws_library_are_filtered_and_the_search_finds_them_if_they_are_not(
    canary: str, s3_endpoint: str, search: Search, way: str, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_be_checked(s3_endpoint, canary.split("/")[2])
    with granting(search) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        done = subprocess.run(
            [sys.executable, "-c", _LOGS + program + _END, way, canary],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    assert "the end" in done.stderr
    search.look(f"{way} log", done.stderr)
    search.report()
    assert bool(search.hits) == (way == "unfiltered")


def test_values_with_secrets_do_not_show_them(canary: str, search: Search) -> None:
    from offload.wiring import credential_finder, open_store

    found = credential_finder()()
    assert (found.secret_key, found.session_token) == (SECRET, SESSION)
    with closing(open_store(canary)) as store:
        for each in (found, store, logging.getLogger("botocore")):
            search.look("repr", repr(each) + str(each))
    assert search.hits == []
