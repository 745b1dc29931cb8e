"""Test the rules that keep the tenants of one daemon apart, besides IAM."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.errors import InvalidRemote
from offload.daemon.tenants import are_apart, check_credentials, check_variables, identity_of
from offload.settings import Settings
from offload.wiring import open_store
from seglog.errors import InvalidSetting

ROLE = "arn:aws:iam::123456789012:role/tenants"


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("SEGLOG_REMOTE", "remote.url"),
        ("SEGLOG_OFFLOAD_SSE", "offload.sse"),
        ("SEGLOG_OFFLOAD_SSE_KMS_KEY_ID", "offload.sse_kms_key_id"),
        ("SEGLOG_TENANT_NAME", "tenant.name"),
        ("SEGLOG_TENANT_ROLE_ARN", "tenant.role_arn"),
        ("SEGLOG_TENANT_ROLE", "tenant.role"),
        ("SEGLOG_TENANT_EXTERNAL_ID", "tenant.external_id"),
        ("SEGLOG_TENANT_SESSION_POLICY", "tenant.session_policy"),
    ],
)
def test_no_variable_gives_all_tenants_one_identity(variable: str, key: str) -> None:
    with pytest.raises(InvalidSetting, match=f"the variable {variable} would be that of all tenants") as caught:
        check_variables({variable: "false"})
    assert caught.value.key == key
    assert f"[{key.partition('.')[0]}] of each tenant's seglog.toml" in str(caught.value)
    check_variables({variable: "", "SEGLOG_OFFLOAD_CODEC": "none", "SEGLOG_TENANT_QUOTA_BYTES": "7"})


def test_a_remote_in_s3_needs_a_role_of_its_own() -> None:
    in_s3 = {"remote": {"url": "S3://archive/acme"}}
    with pytest.raises(InvalidSetting, match="shared_credentials"):
        check_credentials(Settings(in_s3), is_shared=False)
    check_credentials(Settings(in_s3), is_shared=True)
    check_credentials(Settings({**in_s3, "tenant": {"name": "acme", "role_arn": ROLE}}), is_shared=False)
    check_credentials(Settings({"remote": {"url": "file:///archive/acme"}}), is_shared=False)
    check_credentials(Settings(), is_shared=False)


@pytest.mark.parametrize(
    "change",
    [
        {"remote": {"url": "s3://archive/acme2"}},
        {"tenant": {"name": "other", "role_arn": ROLE}},
        {"tenant": {"name": "acme", "role_arn": f"{ROLE}2"}},
        {"tenant": {"name": "acme", "role_arn": ROLE, "role": "reader"}},
        {"tenant": {"name": "acme", "role_arn": ROLE, "session_policy": False}},
        {"tenant": {"name": "acme", "role_arn": ROLE, "external_id": "x"}},
        {"tenant": {"name": "acme", "role_arn": ROLE, "profile": "x"}},
    ],
)
def test_what_binds_an_open_tenant_is_its_identity(change: dict[str, dict[str, object]]) -> None:
    before = {"remote": {"url": "s3://archive/acme"}, "tenant": {"name": "acme", "role_arn": ROLE}}
    assert identity_of(Settings({**before, **change})) != identity_of(Settings(before))
    quota = {"tenant": {**before["tenant"], "quota_bytes": 7}}
    assert identity_of(Settings({**before, **quota})) == identity_of(Settings(before))


SAME = [
    ("s3://archive/acme", "S3://archive/acme"),
    ("s3://archive/acme/", "s3://archive/acme"),
    ("s3://archive/acme", "s3://archive/acme/inner"),
    ("s3://archive", "s3://archive/acme"),
    ("file:///srv/acme", "file:///srv/./acme"),
    ("file:///srv/acme", "file:///srv//other/../acme/"),
    ("file:///srv/acme", "FILE:///srv/%61cme"),
    ("file:///srv/acme/inner", "file:///srv/acme"),
]
APART = [
    ("s3://archive/acme", "s3://archive/acme2"),
    ("s3://archive/acme", "s3://archive2/acme"),
    ("s3://archive/acme", "file:///archive/acme"),
    ("file:///srv/acme", "file:///srv/acme2"),
    ("", "s3://archive/acme"),
    ("", ""),
]


@pytest.mark.parametrize(
    ("one", "other", "expected"), [(*each, False) for each in SAME] + [(*each, True) for each in APART]
)
def test_remotes_are_compared_as_places(one: str, other: str, expected: bool) -> None:
    assert are_apart(one, other) is expected
    assert are_apart(other, one) is expected


def test_a_link_does_not_make_two_places_of_one(tmp_path: Path) -> None:
    (tmp_path / "acme").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "acme")
    assert not are_apart((tmp_path / "acme").as_uri(), f"{(tmp_path / 'link').as_uri()}/inner")


@pytest.mark.parametrize("url", ["s3://archive//acme", "s3://archive/a//b", "s3://archive/acme//"])
def test_a_prefix_with_an_empty_segment_is_refused(url: str) -> None:
    with pytest.raises(InvalidRemote):
        are_apart(url, "s3://archive/acme")
    with pytest.raises(InvalidRemote, match="empty or unsafe path segment"):
        open_store(url)
