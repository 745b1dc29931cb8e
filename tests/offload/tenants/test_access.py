"""Test the request for a tenant's credentials: what the settings give, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from catalog.errors import InvalidArgument
from catalog.tenants.policies import SESSION_POLICY_MAX, TenantRole, compact, tenant_policy
from offload.settings import Settings
from offload.tenants.sts_request import TenantAccess, access_of, granted_in, request_of
from seglog.errors import InvalidSetting

ROLE = "arn:aws:iam::123456789012:role/tenants"
URL = "s3://archive/prod/acme"
KMS = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def settings(offload: dict[str, Any] | None = None, **tenant: Any) -> Settings:
    return Settings({"tenant": {"name": "acme", "role_arn": ROLE, **tenant}, "offload": offload or {}})


def test_the_session_policy_is_that_of_the_tenant() -> None:
    access = access_of(settings({"sse": "aws:kms", "sse_kms_key_id": KMS}, role="writer"), URL)
    assert access is not None
    assert access.policy == compact(tenant_policy("acme", TenantRole.WRITER, "archive", "prod", KMS))
    assert request_of(access) == {
        "RoleArn": ROLE,
        "RoleSessionName": "seglog-acme",
        "DurationSeconds": 3600,
        "Policy": access.policy,
    }


def test_the_session_policy_is_for_the_partition_of_the_role() -> None:
    role_arn, key = (arn.replace("arn:aws:", "arn:aws-cn:") for arn in (ROLE, KMS))
    access = access_of(settings({"sse": "aws:kms", "sse_kms_key_id": key}, role_arn=role_arn), URL)
    assert access is not None
    assert "arn:aws-cn:s3:::archive/prod/acme/*" in access.policy
    assert "arn:aws:" not in access.policy
    with pytest.raises(InvalidArgument, match="arn:aws-cn:kms:"):
        access_of(settings({"sse": "aws:kms", "sse_kms_key_id": KMS}, role_arn=role_arn), URL)


def test_settings_reach_the_request() -> None:
    given = settings(session_policy=False, external_id="x-1", profile="caller", credential_s=900)
    access = access_of(given, URL)
    assert access == TenantAccess("acme", ROLE, 900, "", "x-1", "caller")
    assert request_of(access)["ExternalId"] == "x-1"
    assert "Policy" not in request_of(access)


@pytest.mark.parametrize("url", [None, "file:///srv/acme"])
def test_a_remote_without_s3_needs_no_credentials(url: str | None) -> None:
    assert access_of(settings(), url) is None


def test_without_a_role_the_environment_gives_the_credentials() -> None:
    assert access_of(settings(role_arn=""), URL) is None


@pytest.mark.parametrize(
    ("given", "url", "reason"),
    [
        (settings(), "s3://archive/prod/acme2", "not the last segment"),
        (settings(), "s3://archive", "not the last segment"),
        (settings(name=""), URL, "needs tenant.name"),
        (settings(role_arn="acme"), URL, "not of the form"),
        (settings(role_arn=f"{ROLE}\n"), URL, "not of the form"),
        (settings(role_arn=ROLE.replace("aws", "aws-iso")), URL, "not of the form"),
        (settings(role="owner"), URL, "is not reader, writer, maintainer or admin"),
        (settings(credential_s=899), URL, "900 to 43200"),
        (settings({"sse": "aws:kms", "sse_kms_key_id": "alias/acme"}), URL, "not the ARN of a key"),
        (settings({"sse": "aws:kms"}), URL, "not the ARN of a key"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: Settings, url: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        access_of(given, url)


def test_a_reserved_name_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="reserved"):
        access_of(settings(name="refs"), "s3://archive/refs")


def test_the_longest_policy_fits_what_sts_takes() -> None:
    longest = "/".join(["b" * 63] * 8)
    tenant, bucket = "a" * 63, "c" * 63
    given = settings({"sse": "aws:kms", "sse_kms_key_id": KMS}, role="admin", name=tenant)
    access = access_of(given, f"s3://{bucket}/{longest}/{tenant}")
    assert access is not None
    assert 1500 < len(access.policy) <= SESSION_POLICY_MAX
    name = request_of(access)["RoleSessionName"]
    assert len(name) == 64
    other = request_of(replace(access, tenant=f"{access.tenant[:-1]}z"))["RoleSessionName"]
    assert other != name


def test_the_life_counts_from_the_answers_own_time() -> None:
    told = datetime(2030, 1, 1, tzinfo=UTC)  # a clock far from this machine's
    answer = {
        "Credentials": {
            "AccessKeyId": "A",
            "SecretAccessKey": "s",
            "SessionToken": "t",
            "Expiration": told + timedelta(minutes=20),
        },
        "ResponseMetadata": {"HTTPHeaders": {"date": format_datetime(told, usegmt=True)}},
    }
    granted = granted_in(TenantAccess("acme", ROLE, 3600), answer)
    assert granted.life_s == 1200
    assert granted.credentials.expires_at_ms == round((told.timestamp() + 1200) * 1000)
    assert "'t'" not in repr(granted)
