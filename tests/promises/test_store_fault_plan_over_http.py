"""T6 over HTTP: a front before a real S3 server fails any request in any way. The clients are those of the product.

The plans run with clients that repeat failed requests, and with clients that do not. So the fault reaches the code
that decides what happened.
"""

from __future__ import annotations

import logging
import random
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import boto3
import pytest

from catalog.objects import s3
from catalog.objects.s3 import ReadSettings, S3Store
from tests.faults.front import Front, HttpFault, ways_of
from tests.faults.offloads import Figures, Life
from tests.faults.stride import spread
from tests.s3_server import AS_HARNESS
from tests.seams.limits import Limit, set_limit
from tests.work import seed_of, shares, tell

ROUNDS = 3  # the round with the fault, and the next one; on a loaded machine one more may time out
PLANS = 8  # and one of each way to fail that these lack
TIMEOUT_S = 1.0
_DAMAGE = frozenset({"flipped", "BadDigest"})
_REFUSALS = frozenset({"ExpiredToken", "RequestTimeTooSkewed"})
_OF_UPLOADS = frozenset({"create", "abort", "LIST uploads"})
_ABSENCE = frozenset({"NoSuchUpload", "stale", "flipped"})


class Bench:
    """The server, the front, and a store behind each."""

    def __init__(self, endpoint: str, bucket: str, front: Front, open_at: Callable[[str, int], S3Store]) -> None:
        self._bucket = bucket
        self._front = front
        self._open_at = open_at
        self._direct = open_at(endpoint, 4)
        self._client = boto3.client("s3", endpoint_url=endpoint, **AS_HARNESS)
        self._client.create_bucket(Bucket=bucket)

    def close(self) -> None:
        self._direct.close()
        self._client.close()

    def live(
        self, directory: Path, plan: Sequence[HttpFault], attempts: int, figures: Figures, *, stays: bool = False
    ) -> None:
        self._empty_bucket()
        self._front.restart(plan)
        life = Life(directory / "data", lambda: self._open_at(self._front.url, attempts), self._direct)
        while not life.is_over and len(life.errors) < ROUNDS:
            life.go_on(stays_for=ROUNDS if stays else 0)
            if any(fault.lasts for fault in self._front.plan):
                self._front.plan = ()
        self._front.land()
        ways = {fault.way for fault in self._front.struck}
        life.judge_errors(
            damage_was_told=bool(ways & _DAMAGE),
            absence_was_told=bool(ways & _ABSENCE),
            lied_about={
                each
                for fault, kind in zip(self._front.struck, self._front.struck_kinds, strict=True)
                for each in ("commit", "ref")
                if fault.when == "after" and fault.way in _REFUSALS and kind == f"PUT {each}"
            },
        )
        if life.is_over:
            life.judge_end()
        figures.add(
            f"{', '.join(map(str, plan))} ({attempts} attempts)", life, len(self._front.struck),
            hides_uploads=any(fault.kind in _OF_UPLOADS or fault.lasts for fault in self._front.struck),
        )  # fmt: skip
        shutil.rmtree(directory, ignore_errors=True)

    def plans(self, tmp_path: Path) -> list[HttpFault]:
        """Return every fault at every request of a life without faults, and at one more request of each kind."""
        figures = Figures()
        self.live(tmp_path / "none", [], 4, figures)
        assert not any(figures.faults.values()), figures.faults
        return [
            HttpFault(way, when, nth, kind)
            for kind, count in sorted(self._front.kinds.items())
            for nth in range(1, count + 2)
            for way, when in ways_of(kind)
        ]

    def _empty_bucket(self) -> None:
        for upload in self._client.list_multipart_uploads(Bucket=self._bucket).get("Uploads", []):
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        if there := self._client.list_objects_v2(Bucket=self._bucket).get("Contents", []):
            keys = [{"Key": each["Key"]} for each in there]
            self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": keys})


@pytest.fixture
def bench(
    moto_endpoint: str, s3_environment: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Bench]:
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setattr("catalog.objects.settled_writes.backoff_s", lambda _: 0.0)
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    monkeypatch.setattr("botocore.retries.adaptive.ClientRateLimiter.on_sending_request", lambda *_, **__: None)
    set_limit(monkeypatch, Limit.S3_FIRST_BACKOFF, timedelta(milliseconds=1))
    session, bucket = boto3.Session(), f"faults-{uuid.uuid4().hex[:12]}"

    def open_at(endpoint: str, attempts: int) -> S3Store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setattr(s3, "ATTEMPTS", attempts)
        monkeypatch.setattr(s3, "READ_TIMEOUT_S", TIMEOUT_S if attempts < 4 else 30)
        return S3Store(f"s3://{bucket}/acme", session, reads=ReadSettings(timeout_s=2 * TIMEOUT_S, attempts=attempts))

    with Front(moto_endpoint) as front:
        opened = Bench(moto_endpoint, bucket, front, open_at)
        yield opened
        opened.close()


def _run(bench: Bench, tmp_path: Path, plans: Iterable[tuple[HttpFault, int]]) -> Figures:
    figures = Figures()
    for number, (fault, attempts) in enumerate(plans):
        bench.live(tmp_path / f"{number}", [fault], attempts, figures, stays=number % 2 == 1 and not fault.lasts)
    figures.check()
    return figures


@pytest.mark.long
def test_single_faults_over_http(bench: Bench, tmp_path: Path) -> None:
    """Strike in a quarter of the ways to fail. The run's seed chooses them."""
    plans = [(fault, attempts) for fault in bench.plans(tmp_path) for attempts in (1, 2)]
    random.Random(8).shuffle(plans)
    ways = [fault.way for fault, _ in plans]
    taken = spread(ways, PLANS)
    random.Random(seed_of("single faults over http")).shuffle(taken)
    taken = taken[: len(taken) // 4]
    figures = _run(bench, tmp_path, [plans[index] for index in taken])
    tell(f"of {len(plans)} plans, {len({ways[index] for index in taken})} of {len({*ways})} ways to fail")
    assert figures.struck > len(taken) // 3


@shares(3, 3)
def test_all_single_faults_over_http(bench: Bench, tmp_path: Path, share: int) -> None:
    """Strike with each fault, in turn with one attempt and with two."""
    plans = [(fault, 1 + number % 2) for number, fault in enumerate(bench.plans(tmp_path))]
    for_good = [
        (HttpFault(way, when, nth, lasts=True), 1)
        for nth in range(1, 40)
        for way, when in (("500", "before"), ("500", "after"), ("reset", "before"), ("ExpiredToken", "before"))
    ]
    random.Random(9).shuffle(plans)
    taken = [*for_good, *plans][share::2]
    figures = _run(bench, tmp_path, taken)
    assert figures.plans == len(taken)
