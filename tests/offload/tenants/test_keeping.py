"""Test when credentials are renewed, and what a caller gets meanwhile."""

from __future__ import annotations

import traceback

import pytest

from catalog.errors import AccessDenied, StoreUnreachable
from catalog.objects.s3_credentials import FoundCredentials
from offload.tenants.credentials import RENEW_AGAIN_S, Kept
from offload.tenants.sts_request import GrantedCredentials

DOWN = StoreUnreachable("STS", "no answer")


def granted(key: str, life_s: float = 3600) -> GrantedCredentials:
    return GrantedCredentials(FoundCredentials(key, "s", "t", None), life_s)


@pytest.mark.parametrize(("chance", "due_s"), [(0.0, 2400), (1.0, 2040)])
def test_a_renewal_is_due_at_two_thirds_of_the_life_or_a_little_earlier(chance: float, due_s: float) -> None:
    assert Kept("acme").renewed(granted("A"), 100, chance).due_s == pytest.approx(100 + due_s)


def test_failures_keep_the_old_credentials_until_they_expire() -> None:
    kept = Kept("acme").renewed(granted("A"), 0, 0)
    for number in range(8):
        kept = kept.failed(DOWN, 2400 + number, 0)
    assert kept.for_caller(3599).access_key == "A"
    with pytest.raises(StoreUnreachable, match="no answer"):
        kept.for_caller(3600)
    assert kept.renewed(granted("B"), 3700, 0).for_caller(3700).access_key == "B"


def test_the_pause_after_failures_grows_to_a_minute() -> None:
    kept, pauses = Kept("acme"), []
    for _ in range(9):
        kept = kept.failed(DOWN, 0, 0)
        pauses.append(kept.due_s)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_without_any_credentials_a_caller_gets_the_reason() -> None:
    with pytest.raises(AccessDenied, match="have not come yet"):
        Kept("acme").for_caller(0)
    with pytest.raises(StoreUnreachable, match="no answer"):
        Kept("acme").failed(DOWN, 0, 0).for_caller(0)


def test_an_error_that_many_callers_get_holds_none_of_their_frames() -> None:
    error = StoreUnreachable("STS", "no answer")
    kept = Kept("acme").failed(error, 0, 0)
    for _ in range(3):
        with pytest.raises(StoreUnreachable):
            kept.for_caller(0)
    frames = list(traceback.walk_tb(error.__traceback__))
    assert len(frames) == 2


def test_a_refused_key_brings_the_renewal_forward_but_makes_no_storm() -> None:
    kept = Kept("acme").renewed(granted("A"), 100, 0)
    assert not kept.is_refused("A", 100 + RENEW_AGAIN_S - 1)
    assert kept.is_refused("A", 100 + RENEW_AGAIN_S)
    assert not kept.is_refused("", 1000)
    assert not kept.is_refused("an older key", 1000)
    failed = kept.failed(DOWN, 200, 0)
    assert not failed.is_refused("A", 200.5)
    assert failed.is_refused("A", 201)
