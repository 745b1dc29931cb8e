"""An error that nobody catches ends in its message and a hint, without pages of code that is not the caller's."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.exceptions import NoCredentialsError

import offload
import seglog
from catalog.errors import AccessDenied, NoSuchBucket
from seglog.base.arguments import checked, show_frames
from seglog.errors import SeglogError
from tests.worlds.command import program


@pytest.fixture(autouse=True)
def _as_without_debug() -> None:
    """A test of `--debug` in this process lets its errors keep their frames."""
    show_frames(False)


def _shown(call: Callable[[], object], kind: type[SeglogError]) -> tuple[SeglogError, list[str]]:
    """Return the error of the call, and what Python prints of it if nobody catches it."""
    with pytest.raises(kind) as caught:
        call()
    return caught.value, "".join(traceback.format_exception(caught.value)).splitlines()


def test_a_missing_topic_or_directory_ends_in_a_line_and_a_hint(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data") as log:
        _, lines = _shown(lambda: log.topic("x").read(), seglog.NoSuchTopic)
    assert len(lines) <= 10
    assert lines[-2:] == [
        "seglog.errors.NoSuchTopic: no topic x",
        "Hint: `seglog status` lists the topics, also those that this directory only follows",
    ]
    _, lines = _shown(lambda: seglog.open(tmp_path / "none", create=False), seglog.NotADataDirectory)
    assert len(lines) <= 10
    assert lines[-1] == f"Hint: make one: seglog -C {tmp_path}/none init"


@pytest.mark.parametrize("is_missing", ["credentials", "bucket"])
def test_what_the_bucket_lacks_ends_in_a_line_and_a_hint(
    tmp_path: Path, s3_environment: str, s3_remote: str, monkeypatch: pytest.MonkeyPatch, is_missing: str
) -> None:
    url, kind = ("s3://no-such-bucket/acme", NoSuchBucket) if is_missing == "bucket" else (s3_remote, AccessDenied)
    if is_missing == "credentials":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with seglog.open(tmp_path / "data") as log, offload.attach(log, url) as archive:
        log.topic("t").append([b"x"])
        log.topic("t").seal()
        error, lines = _shown(lambda: archive.offload("t"), kind)
    assert len(lines) <= 10
    assert not [line for line in lines if "botocore" in line or "s3.py" in line]
    assert lines[-1].startswith("Hint: ")
    assert error.__context__ is not None, "a handler still finds what the library said"
    assert isinstance(error.__context__, NoCredentialsError) == (is_missing == "credentials")


def test_python_in_development_and_debug_show_all_frames(tmp_path: Path) -> None:
    code = f"import seglog; seglog.open({str(tmp_path / 'data')!r}).topic('x').read()"
    done = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, check=False)
    assert "in state\n" in done.stderr
    assert "Hint: `seglog status` lists" in done.stderr
    told = program("--debug", "read", "x", directory=tmp_path / "data").stderr.decode()
    assert "in state\n" in told
    assert told.splitlines()[-1].startswith("seglog: no topic x. `seglog status` lists")


@checked
def _unknown(reason: Exception) -> None:
    try:
        raise reason
    except type(reason) as error:
        raise seglog.AppendsHeld("a test") from error


@pytest.mark.parametrize(
    ("reason", "is_shown"), [(seglog.NoSuchTopic("overdrawn"), True), (OSError("overdrawn"), False)]
)
def test_a_cause_of_ours_is_shown_and_that_of_a_library_stays_on_the_error(reason: Exception, is_shown: bool) -> None:
    error, lines = _shown(lambda: _unknown(reason), seglog.AppendsHeld)
    assert any("overdrawn" in line for line in lines) == is_shown
    assert error.__context__ is reason
