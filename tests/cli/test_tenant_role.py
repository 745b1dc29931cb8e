"""Test `--role-arn` of the commands that make a data directory: each request to the remote has the tenant's role."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.front import Front, HttpFault
from tests.s3_server import ACCESS_KEY
from tests.worlds.command import Run

ROLE = "arn:aws:iam::111122223333:role/tenants"


@pytest.fixture(scope="module")
def archives() -> list[str]:
    """The remote that the first test fills. All others share it, because no command of theirs changes its records."""
    return []


@pytest.fixture
def archive(run: Run, s3_remote: str, archives: list[str]) -> str:
    """Return a remote with one topic, `t`."""
    if not archives:
        assert run("init", "--remote", s3_remote).code == 0
        run("append", "t", stdin=b"a\nb\n")
        run("seal", "t")
        assert run("offload", "t").code == 0
        archives.append(s3_remote)
    return archives[0]


@pytest.fixture
def front(s3_environment: str, archive: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    """A front before the remote."""
    assert archive
    with Front(s3_environment) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        yield front


WORDS = [
    ("recover", "REMOTE", "new"),
    ("recover", "REMOTE", "new", "--writable"),
    ("init", "--from", "REMOTE"),
    ("follow", "REMOTE", "new", "--once"),
]


def made(run: Run, remote: str, *words: str, role: bool = True) -> None:
    asked = [remote if word == "REMOTE" else word for word in words] + (["--role-arn", ROLE] if role else [])
    done = run(*asked, directory="new")
    assert done.code == 0, done.err


def check_role(front: Front) -> None:
    """The caller's own key went to STS alone, and each request to the tenant's prefix had another one."""
    assert front.access_keys[ACCESS_KEY] == front.kinds["POST data"] > 0
    assert front.keys_of_prefixes["acme"]
    assert ACCESS_KEY not in front.keys_of_prefixes["acme"]


def tenant_of(directory: Path) -> dict[str, object]:
    section = tomllib.loads((directory / "seglog.toml").read_text())["tenant"]
    assert isinstance(section, dict)
    return section


@pytest.mark.parametrize("words", WORDS, ids=lambda words: " ".join(words))
def test_a_new_directory_takes_the_role_from_its_first_request(
    run: Run, front: Front, archive: str, tmp_path: Path, words: tuple[str, ...]
) -> None:
    made(run, archive, *words)
    check_role(front)
    assert tenant_of(tmp_path / "new") == {"name": "acme", "role_arn": ROLE}
    front.restart([])
    assert run("read", "t", directory="new").out == b"a\nb\n"
    check_role(front)


@pytest.mark.parametrize("words", WORDS, ids=lambda words: " ".join(words))
def test_the_environment_gives_the_role_too_and_does_not_go_into_the_file(
    run: Run, front: Front, archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("SEGLOG_TENANT_NAME", "acme")
    monkeypatch.setenv("SEGLOG_TENANT_ROLE_ARN", ROLE)
    made(run, archive, *words, role=False)
    check_role(front)
    assert tenant_of(tmp_path / "new") == {}


def test_a_directory_that_follows_goes_on_with_its_own_role(run: Run, front: Front, archive: str) -> None:
    made(run, archive, "follow", "REMOTE", "new", "--once")
    front.restart([])
    made(run, archive, "follow", "REMOTE", "new", "--once", role=False)
    check_role(front)


def test_a_recovery_that_was_cut_continues_with_the_role_of_its_file(
    run: Run, front: Front, archive: str, tmp_path: Path
) -> None:
    front.restart([HttpFault("500", nth=4, lasts=True)])
    assert run("recover", archive, "new", "--role-arn", ROLE).code != 0
    assert (tmp_path / "new" / "RECOVERING").exists()
    front.restart([])
    made(run, archive, "recover", "REMOTE", "new", role=False)
    check_role(front)


def test_a_role_that_sts_refuses_writes_nothing(run: Run, front: Front, archive: str, tmp_path: Path) -> None:
    front.restart([HttpFault("AccessDenied", lasts=True)])
    for words in WORDS[1:]:
        asked = [archive if word == "REMOTE" else word for word in words]
        done = run(*asked, "--role-arn", ROLE, directory="new")
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert ROLE in done.err
    assert not (tmp_path / "new").exists()


def test_a_plain_init_keeps_the_role_and_the_external_id(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGLOG_TENANT_EXTERNAL_ID", "of the owner")
    assert run("init", "--remote", "s3://archive/eu/acme", "--role-arn", ROLE).code == 0
    assert tenant_of(tmp_path / "data") == {"name": "acme", "role_arn": ROLE, "external_id": "of the owner"}


@pytest.mark.parametrize(
    ("remote", "role", "part"),
    [
        ("s3://archive/acme", "tenants", "'tenants' is not the ARN of a role"),
        ("s3://archive/acme", "", "'' is not the ARN of a role"),
        ("s3://archive", ROLE, "s3://bucket/prefix/TENANT"),
        ("file:///archive/acme", ROLE, "s3://bucket/prefix/TENANT"),
        ("s3://archive/Acme", ROLE, "Acme"),
        ("s3://[/acme", ROLE, "is not a remote"),
        ("s3://archive/ac\tme", ROLE, "control character"),
    ],
)
def test_what_is_no_role_of_a_tenant_is_refused_before_anything(
    run: Run, tmp_path: Path, remote: str, role: str, part: str
) -> None:
    for words in (("recover", remote, "new"), ("follow", remote, "new"), ("init", "--from", remote)):
        done = run(*words, "--role-arn", role, directory="new")
        assert (done.code, part in done.err) == (2, True), done.err
    assert not (tmp_path / "new").exists()
