"""Test the rights of clients of a real daemon: TCP with TLS and tokens, a reload, and web pages."""

from __future__ import annotations

import json
import signal
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import seglog
from offload.daemon.credential_files import Access
from offload.errors import Misuse
from offload.settings import ServeSettings
from offload.token_rights import Role, token_line
from tests.certificates import certificate
from tests.daemons import ServedDirectory, served
from tests.waiting import wait_until

BYTES = {"Content-Type": "application/octet-stream"}
TOKENS = (
    ("boss", Role.ADMIN, "*"),
    ("shipper", Role.APPEND, "app-*"),
    ("console", Role.READ, "app-*,web"),
    ("scraper", Role.METRICS, "*"),
)


class Asker:
    """Sends requests to a daemon over TLS, with the token that belongs to a name: `secret-of-NAME`."""

    def __init__(self, daemon: ServedDirectory, tls: ssl.SSLContext) -> None:
        self.daemon = daemon
        self.tls = tls

    def ask(self, name: str, method: str, path: str, body: object = None, **more: str) -> tuple[int, Any]:
        is_append = isinstance(body, bytes)
        sent = body if is_append else json.dumps(body).encode() if body is not None else None
        headers = {**(BYTES if is_append else {}), "Authorization": f"bearer secret-of-{name}", **more}
        status, answer, _ = self.daemon.ask(method, path, sent, headers, tls=self.tls)  # type: ignore[arg-type]
        lines = answer.splitlines()
        return status, json.loads(lines[0]) if lines and lines[0].startswith(b"{") else answer


def lines_of(*tokens: tuple[str, Role, str]) -> str:
    return "".join(token_line(name, role, topics, f"secret-of-{name}") + "\n" for name, role, topics in tokens)


def environment(directory: Path) -> Mapping[str, str]:
    """Write a token file and a certificate. Return the settings of a daemon that uses them."""
    (directory / "tokens").write_text(lines_of(*TOKENS))
    (directory / "tokens").chmod(0o600)
    cert, key = certificate(directory)
    return {
        "SERVE_TOKEN_FILE": str(directory / "tokens"),
        "SERVE_TLS_CERTIFICATE": str(cert),
        "SERVE_TLS_KEY": str(key),
        "SERVE_HOST": "127.0.0.1",
    }


def context(directory: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(directory / "certificate.pem"))


def test_each_token_does_what_its_role_says_and_no_more(tmp_path: Path) -> None:
    seglog.open(tmp_path / "d").close()
    with served(tmp_path / "d", (tmp_path / "remote").as_uri(), **environment(tmp_path)) as daemon:
        ask = Asker(daemon, context(tmp_path)).ask
        assert ask("boss", "POST", "/topics/web/records", b"x")[0] == 201
        assert ask("shipper", "POST", "/topics/app-1/records", b"x")[0] == 201
        # A topic that exists and one that does not get the same answer.
        for topic in ("web", "nothing"):
            status, refused = ask("shipper", "POST", f"/topics/{topic}/records", b"x")
            assert (status, refused["title"]) == (403, "NotAllowed")
            assert refused["detail"] == f"the token shipper lacks the role append on topic {topic}"
        reads = ("/topics/{}/records", "/topics/{}/records/1", "/topics/{}/index_bounds")
        for path in reads:
            assert [ask("shipper", "GET", path.format(topic))[0] for topic in ("app-1", "web", "no")] == [200, 403, 403]
            assert ask("shipper", "HEAD", path.format("web"))[0] == 403
            assert ask("scraper", "GET", path.format("web"))[0] == 403
        assert ask("shipper", "GET", "/topics")[1] == {"topics": ["app-1"]}
        assert ask("console", "GET", "/topics")[1] == {"topics": ["app-1", "web"]}
        assert ask("console", "POST", "/rpc/topic/list", {})[1]["topic"] == "app-1"
        assert (
            b'"web"'
            not in daemon.ask(
                "POST", "/rpc/topic/list", b"{}", {"Authorization": "Bearer secret-of-shipper"}, tls=context(tmp_path)
            )[1]
        )
        assert ask("scraper", "GET", "/metrics")[0] == 200
        assert ask("scraper", "GET", "/topics")[0] == 403
        assert ask("nobody", "GET", "/metrics")[0] == 401
        assert ask("nobody", "POST", "/topics/web/records", b"x" * 16_777_216)[0] == 401  # the answer outruns the body
        assert ask("nobody", "GET", "/healthz")[0] == 200
        delete = {"before": 2, "yes": True}
        assert ask("console", "POST", "/topics/web/rpc/delete", delete)[0] == 403
        assert ask("console", "POST", "/topics/web/rpc/truncate", {"seq": 1})[0] == 403
        assert ask("console", "POST", "/rpc/status", {})[0] == 403
        assert ask("console", "POST", "/rpc/status", {"topic": "web"})[0] == 200
        assert ask("console", "GET", "/topics/web/index_bounds")[1]["head_seq"] == 1
        assert daemon.call_over_socket("topic/list")[0]["topic"] == "app-1"
        assert "secret-of" not in "".join(daemon.lines)


def test_the_name_of_a_token_is_in_the_operations_log_in_commits_and_in_the_daemons_log(tmp_path: Path) -> None:
    seglog.open(tmp_path / "d").close()
    with served(tmp_path / "d", (tmp_path / "remote").as_uri(), **environment(tmp_path)) as daemon:
        ask = Asker(daemon, context(tmp_path)).ask
        ask("boss", "POST", "/topics/web/records", b"x")
        assert ask("boss", "POST", "/topics/web/rpc/seal", {})[0] == 200
        assert ask("boss", "POST", "/topics/web/rpc/offload", {})[0] == 200
        assert ask("boss", "POST", "/topics/web/rpc/branch/create", {"name": "try"})[0] == 200
        host = socket.gethostname()
        assert ask("boss", "POST", "/rpc/oplog", {"limit": 1})[1]["writer"] == f"boss@{host}"
        assert ask("boss", "POST", "/topics/web/rpc/log", {})[1]["writer"] == f"boss@{host}"
        assert daemon.call_over_socket("branch/create", topic="web", name="other")[0]["kind"] == "branch_made"
        assert daemon.call_over_socket("oplog", limit=1)[0]["writer"] == host
        wait_until(lambda: any("boss runs branch/create web" in line for line in daemon.lines), pause_s=0.01)


def test_sighup_reads_tokens_and_certificate_again_and_a_wrong_file_changes_neither(tmp_path: Path) -> None:
    seglog.open(tmp_path / "d").close()
    variables = environment(tmp_path)
    with served(tmp_path / "d", (tmp_path / "remote").as_uri(), **variables) as daemon:
        old = Asker(daemon, context(tmp_path))
        assert old.ask("console", "GET", "/topics")[0] == 200
        (tmp_path / "tokens").write_text(lines_of(("newcomer", Role.READ, "*")))
        certificate(tmp_path)
        hang_up(daemon, "settings taken from", 1)
        new = Asker(daemon, context(tmp_path))
        wait_until(lambda: is_trusted(new), pause_s=0.01)
        assert new.ask("newcomer", "GET", "/topics")[0] == 200
        assert new.ask("console", "GET", "/topics")[0] == 401
        assert not is_trusted(old)
        (tmp_path / "tokens").write_text("console:read:*\n")
        hang_up(daemon, "line 1: a line is name:role:topics:sha256", 1)
        assert new.ask("newcomer", "GET", "/topics")[0] == 200
        (tmp_path / "tokens").write_text(lines_of(*TOKENS))
        (tmp_path / "certificate.pem").write_text("nothing")
        hang_up(daemon, "tokens and certificates stay as they are", 2)
        assert new.ask("newcomer", "GET", "/topics")[0] == 200
        assert new.ask("console", "GET", "/topics")[0] == 401


def hang_up(daemon: ServedDirectory, line: str, count: int) -> None:
    """Send SIGHUP, and wait until the daemon's log has the line `count` times."""
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: sum(line in each for each in daemon.lines) >= count, pause_s=0.01)


def is_trusted(asker: Asker) -> bool:
    try:
        asker.ask("newcomer", "GET", "/healthz")
    except ssl.SSLCertVerificationError:
        return False
    return True


def test_a_web_page_may_ask_if_its_origin_is_on_the_list(tmp_path: Path) -> None:
    seglog.open(tmp_path / "d").close()
    (tmp_path / "tokens").write_text(lines_of(*TOKENS))
    variables = {
        "SERVE_TOKEN_FILE": str(tmp_path / "tokens"),
        "SERVE_ALLOWED_ORIGINS": "https://console.example, http://localhost:3000",
    }
    page = {"Origin": "https://console.example"}
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    bearer = {"Authorization": "Bearer secret-of-console"}
    with served(tmp_path / "d", (tmp_path / "remote").as_uri(), **variables) as daemon:
        status, _, headers = daemon.ask("OPTIONS", "/topics/app-1/records", None, page | asks)
        assert (status, headers["access-control-allow-origin"], headers["vary"]) == (204, page["Origin"], "Origin")
        assert headers["access-control-allow-headers"] == "authorization,content-type"
        assert "POST" in headers["access-control-allow-methods"]
        for more, expected in ((bearer, 200), ({}, 401)):
            status, _, headers = daemon.ask("GET", "/topics", None, page | more)
            assert (status, headers["access-control-allow-origin"]) == (expected, page["Origin"])
        for origin in ("https://evil.example", "null", "https://console.example.evil", ""):
            for method, more in (("OPTIONS", asks), ("GET", bearer)):
                status, _, headers = daemon.ask(method, "/topics", None, {"Origin": origin} | more)
                assert status == 403
                assert "access-control-allow-origin" not in headers
        assert daemon.ask("OPTIONS", "/topics", None, asks)[0] == 401, "no page asks"
        assert any("any user of this machine may use the token file" in line for line in daemon.lines)


def test_a_token_file_that_others_may_write_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens"
    path.write_text(lines_of(*TOKENS))
    settings = ServeSettings(token_file=str(path))
    for mode in (0o620, 0o602, 0o666):
        path.chmod(mode)
        with pytest.raises(Misuse, match="others may write the token file") as caught:
            Access(settings)
        assert caught.value.hint == f"chmod 600 {path}"
    path.chmod(0o640)
    access = Access(settings)
    before = access.tokens
    path.write_text(lines_of(("newcomer", Role.ADMIN, "*")))
    path.chmod(0o660)
    access.reload(settings, [])
    assert access.tokens is before
    assert "tokens and certificates stay as they are" in caplog.text
