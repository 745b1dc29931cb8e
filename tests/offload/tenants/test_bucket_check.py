"""Test the check that a bucket keeps a tenant apart, against moto's server behind a front that denies requests."""

from __future__ import annotations

import asyncio

import pytest

from catalog.objects.s3_credentials import FoundCredentials
from offload.tenants.bucket_check import BucketCheck, Outcome, check_bucket
from tests.faults.front import Front, HttpFault
from tests.s3_server import may_be_checked

MINE = FoundCredentials("of-the-tenant", "secret", "token", None)


def checked(url: str, front: Front, monkeypatch: pytest.MonkeyPatch) -> BucketCheck:
    monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    return asyncio.run(check_bucket(url, MINE))


@pytest.mark.parametrize(
    ("plan", "own", "whole", "is_good", "said"),
    [
        ([HttpFault("AccessDenied", nth=2)], Outcome.ALLOWED, Outcome.DENIED, True, []),
        ([], Outcome.ALLOWED, Outcome.ALLOWED, False, ["without a prefix is allowed"]),
        ([HttpFault("AccessDenied", lasts=True)], Outcome.DENIED, Outcome.DENIED, False, ["is denied (AccessDenied"]),
        (
            [HttpFault("500", lasts=True)],
            Outcome.UNKNOWN,
            Outcome.UNKNOWN,
            False,
            ["is unknown (InternalError", "without a prefix is unknown"],
        ),
        ([HttpFault("ExpiredToken", nth=2)], Outcome.ALLOWED, Outcome.UNKNOWN, False, ["unknown (ExpiredToken"]),
    ],
)
def test_each_answer_has_its_verdict(
    s3_environment: str,
    s3_remote: str,
    monkeypatch: pytest.MonkeyPatch,
    plan: list[HttpFault],
    own: Outcome,
    whole: Outcome,
    is_good: bool,
    said: list[str],
) -> None:
    may_be_checked(s3_environment, s3_remote.split("/")[2])
    with Front(s3_environment, plan) as front:
        found = checked(s3_remote, front, monkeypatch)
        assert front.kinds == {"LIST": 2}  # and no HeadBucket
        assert front.access_keys == {"of-the-tenant": 2}
    assert (found.own_prefix, found.whole_bucket, found.is_good) == (own, whole, is_good)
    assert len(found.failures) == len(said)
    for text, part in zip(found.failures, said, strict=True):
        assert part in text


def test_no_connection_proves_nothing(s3_remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    found = asyncio.run(check_bucket(s3_remote, MINE))
    assert (found.own_prefix, found.whole_bucket) == (Outcome.UNKNOWN, Outcome.UNKNOWN)
