"""Test a real daemon of a tenant with a role: its credentials come from STS, and it checks its bucket."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import seglog
from tests.daemons import served
from tests.faults.front import Front, HttpFault
from tests.s3_server import ACCESS_KEY, may_be_checked
from tests.waiting import wait_until

ROLE = "arn:aws:iam::123456789012:role/tenants"


@pytest.mark.parametrize("worker", ["process", "thread"])
def test_a_daemon_offloads_with_its_tenants_credentials_and_checks_the_bucket(
    tmp_path: Path, s3_environment: str, s3_remote: str, monkeypatch: pytest.MonkeyPatch, worker: str
) -> None:
    seglog.open(tmp_path / "d").close()
    may_be_checked(s3_environment, s3_remote.split("/")[2])
    with Front(s3_environment) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        given = {"TENANT_NAME": "acme", "TENANT_ROLE_ARN": ROLE, "OFFLOAD_WORKER": worker}
        with served(tmp_path / "d", s3_remote, **given) as daemon:
            daemon.append("t", b"x")
            assert daemon.ask("POST", "/commands/offload", b'{"topic": "t", "tail": true}')[0] in {200, 404}

            def metrics() -> str:
                return daemon.ask("GET", "/metrics")[1].decode()

            wait_until(lambda: 'kind="whole_bucket"' in metrics())
            text = metrics()
            assert re.search(r'^seglog_tenant_bucket_check{.*kind="own_prefix".*} 1.0$', text, re.MULTILINE)
            # moto ignores policies
            assert re.search(r'^seglog_tenant_bucket_check{.*kind="whole_bucket".*} 0.0$', text, re.MULTILINE)
            assert re.search(r'^seglog_tenant_credential_renewals_total{.*outcome="ok".*} 1.0$', text, re.MULTILINE)
            assert re.search(r"^seglog_tenant_credentials_expiry_timestamp_seconds.* 1\.", text, re.MULTILINE)
            wait_until(lambda: any("without a prefix is allowed" in line for line in daemon.lines))
        # The daemon's own key asks STS once. All other requests are the tenant's.
        assert front.access_keys.pop(ACCESS_KEY) == 1
        assert len(front.access_keys) == 1


def test_a_daemon_without_sts_takes_appends_and_says_why_nothing_reaches_the_bucket(
    tmp_path: Path, s3_environment: str, s3_remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seglog.open(tmp_path / "d").close()
    with Front(s3_environment, [HttpFault("AccessDenied", lasts=True)]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        with served(tmp_path / "d", s3_remote, TENANT_NAME="acme", TENANT_ROLE_ARN=ROLE) as daemon:
            daemon.append("t", b"x")
            wait_until(
                lambda: (
                    re.search(
                        rb'seglog_tenant_credential_renewals_total{.*outcome="failed"', daemon.ask("GET", "/metrics")[1]
                    )
                    is not None
                )
            )
            wait_until(lambda: any("tenant acme: cannot renew its credentials" in line for line in daemon.lines))
        assert set(front.access_keys) == {ACCESS_KEY}
