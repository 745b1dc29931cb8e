"""Test the credentials of the process as a source: when it looks for them again, and what stays if there are none."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from catalog.errors import AccessDenied
from catalog.objects.s3_credentials import EnvironmentCredentials, FoundCredentials

MINUTE_MS = 60_000.0


class Finder:
    """Finds `key-1`, then `key-2`, and so on, which live for `lives_ms`; None: for ever. It fails while `is_down`.

    `now_ms` is the time.
    """

    def __init__(self, *lives_ms: float | None) -> None:
        self._lives_ms: Sequence[float | None] = lives_ms
        self.is_down = False
        self.asked = self.given = 0
        self.now_ms = 1_000_000_000.0

    def source(self) -> EnvironmentCredentials:
        return EnvironmentCredentials(self.find, lambda: self.now_ms)

    def find(self) -> FoundCredentials:
        self.asked += 1
        if self.is_down:
            raise AccessDenied("S3", "the program failed")
        life_ms = self._lives_ms[min(self.given, len(self._lives_ms) - 1)]
        self.given += 1
        return FoundCredentials(
            f"key-{self.given}", "s", "t", None if life_ms is None else round(self.now_ms + life_ms)
        )


@pytest.mark.parametrize(
    ("life_ms", "passes_ms", "asked"),
    [
        (None, 1000 * MINUTE_MS, 1),
        (60 * MINUTE_MS, 10 * MINUTE_MS, 1),
        (60 * MINUTE_MS, 28 * MINUTE_MS, 2),  # less than five minutes are left after 56
        (60 * MINUTE_MS, 60 * MINUTE_MS, 3),
        (MINUTE_MS, 10_000, 1),  # asked just now, and there are none that live longer
        (MINUTE_MS, 20_000, 2),
        (MINUTE_MS, 60_000, 3),
    ],
)
def test_credentials_are_looked_for_again_shortly_before_they_end(
    life_ms: float | None, passes_ms: float, asked: int
) -> None:
    """Ask three times, so long after each other (AMBIENT-1)."""
    finder = Finder(life_ms)
    source = finder.source()
    for _ in range(3):
        for _ in range(3):
            source.current()
        finder.now_ms += passes_ms
    assert finder.asked == asked


def test_a_failure_takes_nothing_away_until_the_credentials_end() -> None:
    """The old ones stay until they expire (AMBIENT-2)."""
    finder = Finder(10 * MINUTE_MS)
    source = finder.source()
    source.current()
    finder.is_down = True
    finder.now_ms += 6 * MINUTE_MS
    assert source.current().access_key == source.current().access_key == "key-1"
    assert finder.asked == 2
    finder.now_ms += 4 * MINUTE_MS
    with pytest.raises(AccessDenied, match="the program failed"):
        source.current()
    finder.is_down = False
    assert source.current().access_key == "key-2"


def test_a_refused_key_is_replaced_and_no_storm_follows() -> None:
    finder = Finder(None)
    source = finder.source()
    assert source.current("another").access_key == "key-1"
    assert source.current("key-1").access_key == "key-2"
    assert source.current("key-1").access_key == "key-2"
    assert source.current("key-2").access_key == "key-2"  # at most once in five seconds (AMBIENT-3)
    finder.now_ms += 5_001
    assert source.current("key-2").access_key == "key-3"
    assert finder.asked == 3


@pytest.mark.parametrize(("minutes", "runs"), [(60, 1), (8, 2)])
def test_the_program_of_a_profile_runs_for_a_life_and_not_for_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: int, runs: int
) -> None:
    """boto3 alone would run it for each request, if the credentials live for less than 15 minutes. It runs it twice."""
    expires = (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()
    answer = {"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": expires}
    program = tmp_path / "program.py"
    program.write_text(f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\nprint({json.dumps(answer)!r})\n")
    (tmp_path / "config").write_text(f"[profile acme]\ncredential_process = {sys.executable} {program}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "acme")
    source = EnvironmentCredentials()
    assert {source.current().access_key for _ in range(3)} == {"a"}
    assert (tmp_path / "runs").read_text() == "x" * runs
