"""Test a data directory of a tenant with a role: each request to its bucket has credentials from STS."""

from __future__ import annotations

from pathlib import Path

import pytest

import offload
import seglog
from offload.settings import Settings
from seglog.errors import InvalidSetting
from tests.faults.front import Front
from tests.s3_server import ACCESS_KEY

ROLE = "arn:aws:iam::123456789012:role/tenants"


def test_an_archive_of_a_tenant_uses_the_role(
    tmp_path: Path, s3_remote: str, s3_environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings({"tenant": {"name": "acme", "role_arn": ROLE}, "remote": {"url": s3_remote}})
    with Front(s3_environment) as front, seglog.open(tmp_path / "data") as log:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        topic = log.topic("orders")
        topic.append([b"one"])
        topic.seal()
        archive = offload.attach(log, settings=settings)
        archive.offload("orders", drop_hot=True)
        assert [record.value for record in topic.read(1)] == [b"one"]
        archive.close()
        # The process asks STS once with its own key, and its bucket never.
        assert front.access_keys[ACCESS_KEY] == 1
        assert len(front.access_keys) == 2
        assert front.access_keys.total() > 5


def test_a_remote_of_another_tenant_is_refused_before_anything(tmp_path: Path) -> None:
    settings = Settings({"tenant": {"name": "acme", "role_arn": ROLE}})
    with (
        seglog.open(tmp_path / "data") as log,
        pytest.raises(InvalidSetting, match="not the last segment of the remote s3://archive/other"),
    ):
        offload.attach(log, "s3://archive/other", settings=settings)
