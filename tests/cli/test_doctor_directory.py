"""Test the checks of `seglog doctor` for the data directory and its machine."""

from __future__ import annotations

import datetime as dt
import errno
import os
import resource
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from offload.errors import ChecksFailed
from offload.operations.doctor import DirectoryChecked, doctor_directory, valid_until_ms
from offload.settings import ServeSettings
from tests.worlds.command import Run

NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
NOW_MS = int(NOW.timestamp()) * 1000


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "data"
    made.mkdir(mode=0o700)
    yield made
    made.chmod(0o700)


def checks(
    directory: Path, settings: ServeSettings | None = None, reject_bytes: int = 0
) -> Mapping[str, DirectoryChecked]:
    found = {}
    serve = settings or ServeSettings(disk_alarm_bytes=0)
    failed = None
    try:
        for each in doctor_directory(directory, serve, NOW_MS, reject_bytes=reject_bytes, answer_s=0.05):
            found[each.check] = each
    except ChecksFailed as error:
        failed = error.count
    assert failed == (sum(each.outcome == "fail" for each in found.values()) or None)
    assert all(bool(each.advice) == (each.outcome != "ok") for each in found.values())
    return found


def certificate(path: Path, until: dt.datetime, *, name: str = "localhost") -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1 << 100)
        .not_valid_before(NOW - dt.timedelta(days=400))
        .not_valid_after(until)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return path


def test_a_sound_directory_gets_one_line_for_each_check(run: Run, directory: Path) -> None:
    assert run("init").code == 0
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    done = run("doctor")
    assert (done.code, done.err) == (0, "")
    assert [line.split()[1] for line in done.text.splitlines()] == [
        "versions:", "disk:", "fsync:", "files:", "permissions:", "tls:", "daemon:", "packages:",
    ]  # fmt: skip
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*")} == before


def test_a_failed_check_ends_with_exit_code_1_and_says_what_to_do(run: Run, directory: Path) -> None:
    assert run("init").code == 0
    directory.chmod(0o707)
    done = run("doctor")
    assert done.code == 1
    assert "FAIL    permissions: everybody may write data (707). To do: chmod o-w data" in done.text
    assert "1 check failed at data" in done.err


def test_the_disk_is_judged_as_the_daemon_does(directory: Path) -> None:
    alarm = ServeSettings(disk_alarm_bytes=1 << 60)
    assert checks(directory, alarm)["disk"].outcome == "warn"
    assert checks(directory, alarm, 1 << 60)["disk"].outcome == "fail"


def test_slow_syncs_and_few_files_are_told(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = iter(range(100))
    monkeypatch.setattr("offload.operations.doctor.time.perf_counter", lambda: next(now_s))
    for limit, outcome in ((resource.RLIM_INFINITY, "ok"), (1024, "ok"), (1000, "warn"), (100, "fail")):
        monkeypatch.setattr("resource.getrlimit", lambda _, limit=limit: (limit, limit))
        found = checks(directory)
        assert (found["fsync"].outcome, found["files"].outcome) == ("warn", outcome)


def test_secrets_that_others_may_read_are_told(directory: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    settings = ServeSettings(token_file=str(token), disk_alarm_bytes=0)
    assert checks(directory, settings)["permissions"].outcome == "fail"  # there is no such file
    token.write_text("secret")
    token.chmod(0o640)
    assert checks(directory, settings)["permissions"].advice == f"chmod 600 {token}"
    token.chmod(0o600)
    assert checks(directory, settings)["permissions"].outcome == "ok"


@pytest.mark.parametrize(("days", "outcome"), [(-1, "fail"), (0, "fail"), (13, "warn"), (15, "ok"), (9000, "ok")])
def test_the_end_of_the_certificate_is_told_in_time(directory: Path, tmp_path: Path, days: int, outcome: str) -> None:
    until = NOW + dt.timedelta(days=days)
    path = certificate(tmp_path / "tls.pem", until, name="n" * 64)
    assert valid_until_ms(path.read_text()) == int(until.timestamp()) * 1000  # the last one is beyond 2049
    serve = ServeSettings(tls_certificate=str(path), tls_key="key", disk_alarm_bytes=0)
    assert checks(directory, serve)["tls"].outcome == outcome


def test_a_file_that_is_no_certificate_fails(directory: Path, tmp_path: Path) -> None:
    whole = certificate(tmp_path / "tls.pem", NOW).read_text().splitlines()
    serve = ServeSettings(tls_certificate=str(tmp_path / "tls.pem"), disk_alarm_bytes=0)
    for text in ("", "text", "\n".join([whole[0], whole[1], whole[-1]]), "\n".join([whole[0], whole[-1]])):
        (tmp_path / "tls.pem").write_text(text)
        assert checks(directory, serve)["tls"].outcome == "fail"


def test_a_daemon_that_does_not_answer_fails_and_one_that_is_gone_does_not(directory: Path) -> None:
    assert checks(directory)["daemon"].found == "no daemon serves this directory"
    with socket.socket(socket.AF_UNIX) as silent:
        here = os.open(directory, os.O_RDONLY)
        silent.bind(f"/proc/self/fd/{here}/seglog.sock")
        os.close(here)
        silent.listen()
        assert "does not answer" in checks(directory)["daemon"].found
    assert checks(directory)["daemon"].outcome == "ok"


def test_a_full_disk_gets_the_advice_for_room_and_not_for_permissions(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    found = checks(directory)["fsync"]
    assert found.outcome == "fail"
    assert "free some space" in found.advice
