"""Test the store of a process of Spark: its credentials come from the program of a profile, and may end meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from catalog.errors import AccessDenied
from catalog.format.keys import Key
from offload.spark.stores import open_remote
from tests.faults.front import Front, HttpFault

#: Prints `key-1`, then `key-2`, and so on. Each line of the file `runs` is a run.
PROGRAM = """
import json, sys
with open(sys.argv[1], "a+") as runs:
    runs.write("run\\n")
    runs.seek(0)
    number = len(runs.readlines())
answer = {"AccessKeyId": f"key-{number}", "SecretAccessKey": "s", "SessionToken": "t"}
print(json.dumps({"Version": 1, "Expiration": "2099-01-01T00:00:00Z", **answer}))
"""


@pytest.fixture
def front(s3_environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    """A front, and an environment whose only credentials come from a program."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = f"{sys.executable} {tmp_path / 'program.py'} {tmp_path / 'runs'}"
    (tmp_path / "config").write_text(f"[profile acme]\ncredential_process = {command}\n")
    with Front(s3_environment) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_PROFILE", "acme")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        yield front


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


def test_the_program_runs_once_for_all_requests(front: Front, s3_remote: str, tmp_path: Path) -> None:
    with closing(open_remote(s3_remote)) as store:
        store.put(Key("a"), b"body", {})
        assert store.get(Key("a")) == b"body"
        assert list(store.list("")) == ["a"]
    assert (front.access_keys, runs(tmp_path)) == ({"key-1": 3}, 1)


@pytest.mark.long
@pytest.mark.parametrize("ask", ["get", "list", "put"])
def test_a_key_that_the_store_refuses_makes_the_program_run_again(
    front: Front, s3_remote: str, tmp_path: Path, ask: str
) -> None:
    with closing(open_remote(s3_remote)) as store:
        store.put(Key("a"), b"body", {})
        front.restart([HttpFault("ExpiredToken")])
        if ask == "get":
            assert store.get(Key("a")) == b"body"
        elif ask == "list":
            assert list(store.list("")) == ["a"]
        else:
            store.put(Key("b"), b"", {})
    assert runs(tmp_path) == 2
    assert front.access_keys["key-2"] == 1


def test_a_store_that_refuses_every_key_starts_no_storm(front: Front, s3_remote: str, tmp_path: Path) -> None:
    front.restart([HttpFault("ExpiredToken", lasts=True)])
    with closing(open_remote(s3_remote)) as store:
        for _ in range(3):
            with pytest.raises(AccessDenied):
                list(store.list(""))
    assert runs(tmp_path) == 2


def test_a_local_remote_asks_for_no_credentials(front: Front, tmp_path: Path) -> None:
    with closing(open_remote((tmp_path / "remote").as_uri())) as store:
        store.put_new(Key("a"), b"")
    assert not (tmp_path / "runs").exists()
