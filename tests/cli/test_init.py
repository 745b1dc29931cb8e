"""`seglog init` tries the remote with one request, and makes the directory whatever it finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.front import Front, HttpFault
from tests.schemas import SCHEMAS, mismatches
from tests.worlds.command import Done, Run


def _made(run: Run, remote: str, tmp_path: Path) -> Done:
    done = run("init", "--remote", remote)
    assert (done.code, done.err) == (0, "")
    assert done.text.startswith(f"made {tmp_path / 'data'}, remote {remote}")
    assert f'url = "{remote}"' in (tmp_path / "data" / "seglog.toml").read_text()
    return done


def test_a_new_remote_takes_one_list_and_has_no_topics(
    run: Run, s3_environment: str, s3_remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Front(s3_environment) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        done = _made(run, s3_remote, tmp_path)
        assert dict(front.kinds) == {"LIST": 1}
    assert done.text.endswith(", which has no topics yet\n")


def test_a_remote_with_topics_is_told_with_the_commands_for_it(run: Run, remote: str, tmp_path: Path) -> None:
    for words in (["init", "--remote", remote], ["append", "orders"], ["seal", "orders"], ["offload", "orders"]):
        assert run("-C", "first", *words, stdin=b"one\n", directory=None).code == 0, words
    text = _made(run, remote, tmp_path).text
    assert "the remote has topics already, such as orders" in text
    assert run("sync", "orders").code == 0, "the first command that it names"
    assert run("read", "orders").out == b"one\n"
    assert run("-C", "all", "init", "--from", remote, directory=None).code == 0
    assert run("recover", remote, "recovered", directory=None).code == 0
    assert run("follow", remote, "standby", "--once", directory=None).code == 0
    assert {f"{word} {remote}" in text for word in ("init --from", "recover", "follow")} == {True}
    found = json.loads(run("-C", "third", "--json", "init", "--remote", remote, directory=None).text)
    assert mismatches(found, SCHEMAS["directory_made"]) == []
    assert (found["remote_state"], found["detail"]) == ("has topics", "orders")


def test_a_remote_that_refuses_is_not_checked(
    run: Run, s3_environment: str, s3_remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Front(s3_environment, [HttpFault("AccessDenied", lasts=True)]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        text = _made(run, s3_remote, tmp_path).text
    assert f"\n  not checked: {s3_remote} refuses access" in text
    assert text.endswith("\n  `seglog doctor` checks the remote\n")


def test_a_remote_out_of_reach_is_not_checked_and_appends_work(
    run: Run, s3_environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert "\n  not checked: cannot reach s3://bucket/acme" in _made(run, "s3://bucket/acme", tmp_path).text
    assert run("append", "t", stdin=b"x\n").code == 0
    found = json.loads(run("-C", "b", "--json", "init", "--remote", "s3://bucket/b", directory=None).text)
    assert found["remote_state"] == "not checked"
    assert "cannot reach" in found["detail"]


def test_a_remote_without_credentials_is_not_checked(
    run: Run, s3_environment: str, s3_remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "refuses access: no AWS credentials found; set AWS_ACCESS_KEY_ID" in _made(run, s3_remote, tmp_path).text
