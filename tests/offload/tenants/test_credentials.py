"""Test credentials from STS: of one command by boto3, and of many tenants by one refresher, against moto's server."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from catalog.errors import AccessDenied, CatalogError, StoreUnreachable
from catalog.objects.s3_credentials import FoundCredentials
from offload.tenants import credentials as module
from offload.tenants.credentials import Refresher, SingleTenant, TenantCredentials, assume_role
from offload.tenants.sts_request import GrantedCredentials, TenantAccess
from tests.faults.front import Front, HttpFault

ROLE = "arn:aws:iam::123456789012:role/tenants"
ACME = TenantAccess("acme", ROLE, 3600)


class Sts:
    """STS as a function. `down` makes it fail; `life_s` is the life of the credentials that it gives."""

    def __init__(self, life_s: float = 3600) -> None:
        self.life_s = life_s
        self.down: CatalogError | None = None
        self.asked: list[str] = []
        self.at_once = self.most_at_once = 0
        self._numbers = itertools.count(1)

    def assume(self, access: TenantAccess) -> GrantedCredentials:
        self.asked.append(access.tenant)
        if self.down is not None:
            raise self.down
        found = FoundCredentials(f"{access.tenant}-{next(self._numbers)}", "s", "t", None)
        return GrantedCredentials(found, self.life_s)

    async def assume_async(self, access: TenantAccess) -> GrantedCredentials:
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await asyncio.sleep(0.001)
        finally:
            self.at_once -= 1
        return self.assume(access)


def test_sts_gives_credentials_to_a_command(s3_environment: str) -> None:
    source = SingleTenant(ACME)
    found = source.current()
    assert found.session_token
    assert found.expires_at_ms is not None
    assert source.current() == found


def test_a_role_that_sts_refuses_is_named(s3_environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = "no credentials for acme by arn:aws:iam::123456789012:role/tenants: "
    with Front(s3_environment, [HttpFault("AccessDenied", lasts=True)]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        with pytest.raises(AccessDenied, match=refusal):
            assume_role(ACME)


def test_sts_that_is_away_is_an_error(s3_environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StoreUnreachable, match="STS"):
        assume_role(ACME)


def test_a_profile_that_is_absent_is_an_error(s3_environment: str) -> None:
    with pytest.raises(AccessDenied, match="nowhere"):
        assume_role(dataclasses.replace(ACME, profile="nowhere"))


def test_a_command_keeps_old_credentials_while_sts_is_away(caplog: pytest.LogCaptureFixture) -> None:
    sts = Sts(life_s=0.0)
    source = SingleTenant(ACME, sts.assume)
    with pytest.raises(AccessDenied, match="have expired"):
        source.current()
    sts.life_s = 3600
    assert source.current().access_key == "acme-2"
    sts.down = StoreUnreachable("STS", "no answer")
    assert source.current("acme-2").access_key == "acme-2"  # too early for a new one, so STS is not asked
    assert sts.asked == ["acme"] * 2
    assert not caplog.records


def first_of(source: TenantCredentials) -> FoundCredentials:
    """Return the first credentials of a tenant, however slow the machine is."""
    while True:
        with suppress(AccessDenied):
            return source.current()


def test_one_loop_gets_the_credentials_of_many_tenants(s3_environment: str, s3_remote: str) -> None:
    async def run() -> set[str]:
        refresher = Refresher()
        sources = [refresher.add(dataclasses.replace(ACME, tenant=f"t{number}")) for number in range(20)]
        loop = asyncio.get_running_loop()
        try:
            # Threads of their own: aiobotocore needs the default ones of the loop.
            with ThreadPoolExecutor(len(sources)) as pool:
                found = await asyncio.gather(*(loop.run_in_executor(pool, first_of, source) for source in sources))
        finally:
            await refresher.close()
        return {each.access_key for each in found}

    assert len(asyncio.run(run())) == 20


def test_renewals_of_many_tenants_are_bounded_and_repeat() -> None:
    sts = Sts(life_s=0.03)

    async def run() -> None:
        refresher = Refresher(sts.assume_async)
        for number in range(40):
            refresher.add(dataclasses.replace(ACME, tenant=f"t{number}"))
        while len(sts.asked) < 200:
            await asyncio.sleep(0.01)
        await refresher.close()
        asked = len(sts.asked)
        await asyncio.sleep(0.05)
        assert len(sts.asked) == asked

    asyncio.run(run())
    assert len(set(sts.asked)) == 40
    assert sts.most_at_once == 8


def test_a_failing_sts_is_logged_and_watched_and_hurts_one_tenant(caplog: pytest.LogCaptureFixture) -> None:
    sts = Sts()
    heard: list[CatalogError | None] = []

    async def assume(access: TenantAccess) -> GrantedCredentials:
        if access.tenant == "other":
            raise StoreUnreachable("STS", "no answer")
        return await sts.assume_async(access)

    async def run() -> None:
        refresher = Refresher(assume)
        good = refresher.add(ACME)
        bad = refresher.add(dataclasses.replace(ACME, tenant="other"), heard.append)
        assert (await asyncio.to_thread(good.current)).access_key == "acme-1"
        with pytest.raises(StoreUnreachable, match="no answer"):
            await asyncio.to_thread(bad.current)
        await refresher.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "tenant other: cannot renew its credentials" in caplog.text
    assert [str(error) for error in heard] == ["cannot reach STS: no answer"]


def test_an_unexpected_error_does_not_end_the_renewals() -> None:
    calls = itertools.count()
    sts = Sts()

    async def assume(access: TenantAccess) -> GrantedCredentials:
        if next(calls) == 0:
            raise RuntimeError("a defect")
        return await sts.assume_async(access)

    async def run() -> str:
        refresher = Refresher(assume)
        source = refresher.add(ACME)
        with pytest.raises(StoreUnreachable, match="RuntimeError"):
            await asyncio.to_thread(source.current)
        source.wanted.set()
        while True:
            try:
                return source.current().access_key
            except StoreUnreachable:
                await asyncio.sleep(0.01)
            finally:
                if sts.asked:
                    await refresher.close()

    assert asyncio.run(run()) == "acme-1"


def test_a_refused_key_is_renewed_for_a_thread_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offload.tenants.credentials.RENEW_AGAIN_S", 0.0)
    sts = Sts()

    async def run() -> None:
        refresher = Refresher(sts.assume_async)
        source = refresher.add(ACME)
        first = await asyncio.to_thread(source.current)
        assert source.current(first.access_key) == first  # in the loop's own thread nothing waits
        second = await asyncio.to_thread(source.current, first.access_key)
        assert second.access_key == "acme-2"
        assert (await asyncio.to_thread(source.current, first.access_key)) == second
        await refresher.close()

    asyncio.run(run())


def test_a_caller_in_the_loop_never_waits() -> None:
    async def run() -> None:
        refresher = Refresher(Sts().assume_async)
        with pytest.raises(AccessDenied, match="have not come yet"):
            refresher.add(ACME).current()
        await refresher.close()

    asyncio.run(run())


def test_a_closed_refresher_leaves_the_last_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offload.tenants.credentials.RENEW_AGAIN_S", 0.0)
    monkeypatch.setattr(module, "WAIT_S", 0.01)

    async def run() -> tuple[FoundCredentials, module.TenantCredentials]:
        refresher = Refresher(Sts().assume_async)
        source = refresher.add(ACME)
        found = await asyncio.to_thread(source.current)
        await refresher.close()
        await refresher.close()
        return found, source

    found, source = asyncio.run(run())
    seen: list[FoundCredentials] = []
    thread = threading.Thread(target=lambda: seen.append(source.current(found.access_key)))
    thread.start()
    thread.join()
    assert seen == [found]


def test_the_extra_is_named_if_it_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)

    async def run() -> None:
        with pytest.raises(Exception, match="aiobotocore, which is not installed") as caught:
            Refresher().add(ACME)
        assert "seglog[tenants]" in str(getattr(caught.value, "hint", ""))

    asyncio.run(run())
