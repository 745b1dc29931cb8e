"""Test `seglog token new`: its line is for the token file of a daemon, and its token opens that daemon."""

from __future__ import annotations

import json
from pathlib import Path

import seglog
from tests.daemons import served
from tests.worlds.command import Run


def test_a_new_token_opens_a_daemon_and_is_nowhere_else(run: Run, tmp_path: Path) -> None:
    made = run("token", "new", "shipper", "--role", "append", "--topics", "app-*", directory=None)
    token = made.err.strip().rpartition(" ")[2]
    assert made.text.startswith("shipper:append:app-*:")
    assert token not in made.text
    other = json.loads(run("--json", "token", "new", "scraper", "--role", "metrics", directory=None).out)
    assert (other["kind"], other["topics"], other["line"].startswith("scraper:metrics:*:")) == ("token_made", "*", True)
    (tmp_path / "tokens").write_text(made.text + other["line"] + "\n")
    seglog.open(tmp_path / "d").close()
    bytes_type = {"Content-Type": "application/octet-stream"}
    with served(tmp_path / "d", (tmp_path / "remote").as_uri(), SERVE_TOKEN_FILE=str(tmp_path / "tokens")) as daemon:
        for topic, given, expected in (("app-1", token, 201), ("web", token, 403), ("app-1", other["token"], 403)):
            headers = {**bytes_type, "Authorization": f"Bearer {given}"}
            assert daemon.ask("POST", f"/topics/{topic}/records", b"x", headers)[0] == expected


def test_a_bound_token_opens_the_daemon_of_its_tenant_only(run: Run, tmp_path: Path) -> None:
    made = run("token", "new", "shipper", "--role", "append", "--tenant", "acme", directory=None)
    token = made.err.strip().rpartition(" ")[2]
    assert made.text.strip().endswith(":acme")
    assert run("token", "new", "x", "--role", "read", "--tenant", "A/b", directory=None).code == 2
    (tmp_path / "tokens").write_text(made.text)
    headers = {"Content-Type": "application/octet-stream", "Authorization": f"Bearer {token}"}
    given = {"SERVE_TOKEN_FILE": str(tmp_path / "tokens")}
    for tenant, expected in (("acme", 201), ("other", 401), ("", 401)):
        seglog.open(tmp_path / "d").close()
        with served(tmp_path / "d", "", **given, TENANT_NAME=tenant) as daemon:
            assert daemon.ask("POST", "/topics/t/records", b"x", headers)[0] == expected
