"""Test that an error for a wrong topic or branch names the ones that look like it, and only those one may see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from offload.token_rights import Role, token_line
from tests.daemons import served, served_tenants
from tests.worlds.command import Run


@pytest.fixture
def filled(run: Run, tmp_path: Path) -> Run:
    """The topics `orders`, `orders-secret` and `notes`, and the branches `orders@fix` and `orders@later`."""
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    for topic in ("orders", "orders-secret", "notes"):
        assert run("append", topic, stdin=b"a\n").code == 0
    for step in ("seal orders", "offload orders", "branch create orders fix", "branch create orders later"):
        assert run(*step.split()).code == 0
    return run


@pytest.fixture(params=["own process", "daemon"])
def either(filled: Run, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    if request.param == "own process":
        yield filled
        return
    with served(tmp_path / "data", (tmp_path / "remote").as_uri()):
        yield filled


def test_a_wrong_name_gets_the_similar_ones(either: Run) -> None:
    _check_topics(either)
    _check_branches(either)


def _check_topics(either: Run) -> None:
    for words in (
        ["read", "ordesr"],
        ["seal", "ordesr"],
        ["delete", "ordesr", "--before", "2", "--yes"],
        ["export", "ordesr", "out"],
    ):
        done = either(*words)
        assert (done.code, done.out, "(similar: orders)." in done.err) == (3, b"", True), done.err
    assert json.loads(either("--json", "seal", "ordesr").err)["message"] == "no topic ordesr (similar: orders)"
    assert either("seal", "order-secret").err.count("(similar: orders-secret, orders)") == 1
    for wrong in ("something-else", "zzz"):
        done = either("seal", wrong)
        assert (done.code, "similar" in done.err) == (3, False)


def _check_branches(either: Run) -> None:
    """A branch that only the remote has is similar, too."""
    for words in (["read", "orders@fxi"], ["read", "orders", "--branch", "fxi"], ["log", "orders@fxi"]):
        done = either(*words)
        assert (done.code, "(similar: orders@fix)" in done.err) == (3, True), done.err
    assert "(similar: orders@later)" in either("branch", "promote", "orders", "latr").err
    assert "(similar: orders)" in either("read", "ordesr@fix").err
    assert "similar" not in either("read", "orders@zzz").err


def test_a_wrong_topic_asks_no_remote(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")  # it refuses each request
    run("init", "--remote", "s3://bucket/prefix")
    run("append", "orders", stdin=b"a\n")
    assert run("tail", "orders").out == b"a\n"
    assert run("seal", "ordesr").err.startswith("seglog: no topic ordesr (similar: orders). ")


def test_a_token_learns_no_name_that_it_may_not_see(filled: Run, tmp_path: Path) -> None:
    lines = []
    for name, topics in (("few", "orders,order-*"), ("all", "*")):
        made = json.loads(filled("--json", "token", "new", name, "--role", "read", "--topics", topics).text)
        (tmp_path / name).write_text(made["token"])
        lines.append(made["line"])
    (tmp_path / "tokens").write_text("\n".join(lines) + "\n")
    (tmp_path / "tokens").chmod(0o600)
    with served(tmp_path / "data", (tmp_path / "remote").as_uri(), SERVE_TOKEN_FILE=str(tmp_path / "tokens")) as daemon:
        found = {}
        for name in ("few", "all"):
            url = f"http://127.0.0.1:{daemon.port}"
            done = filled("--daemon", url, "--token-file", name, "read", "order-secret", directory=None)
            assert done.code == 3, done.err
            found[name] = done.err.partition("similar: ")[2].partition(")")[0]
    assert found == {"few": "orders", "all": "orders-secret, orders"}


@pytest.mark.long
def test_a_token_of_a_tenant_learns_no_name_of_another_one(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for tenant, topics in (("acme", ("orders",)), ("globex", ("orders-of-globex", "order"))):
        assert run("init", directory=f"root/{tenant}").code == 0
        for topic in topics:
            assert run("append", topic, stdin=b"a\n", directory=f"root/{tenant}").code == 0
    (tmp_path / "token").write_text("secret-of-acme")
    (tmp_path / "tokens").write_text(token_line("a", Role.READ, "*", "secret-of-acme", "acme") + "\n")
    (tmp_path / "tokens").chmod(0o600)
    with served_tenants(root, SERVE_TOKEN_FILE=str(tmp_path / "tokens")) as daemon:
        away = ("--daemon", f"http://127.0.0.1:{daemon.port}", "--token-file", "token")
        wrong = run(*away, "read", "ordes", directory=None)
        assert (wrong.code, "(similar: orders)" in wrong.err, "globex" in wrong.err) == (3, True, False), wrong.err
