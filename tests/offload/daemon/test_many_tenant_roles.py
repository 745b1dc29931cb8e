"""Test a daemon of two tenants with roles: the key of each request belongs to the tenant whose prefix it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seglog
from tests.daemons import served_tenants
from tests.faults.front import Front
from tests.s3_server import ACCESS_KEY, may_be_checked, of_several_tenants
from tests.waiting import wait_until

ROLE = "arn:aws:iam::123456789012:role/tenants"
BUCKET = "archive-of-two"


def test_each_tenant_uses_its_own_credentials(
    tmp_path: Path, s3_environment: str, s3_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_client.create_bucket(Bucket=BUCKET)
    of_several_tenants(s3_environment, BUCKET)
    may_be_checked(s3_environment, BUCKET)
    root = tmp_path / "root"
    root.mkdir()
    for name in ("acme", "other"):
        with seglog.open(root / name) as log:
            topic = log.topic("t")
            topic.append([b"x"])
            topic.seal()
        (root / name / "seglog.toml").write_text(
            f'[remote]\nurl = "s3://{BUCKET}/{name}"\n[tenant]\nrole_arn = "{ROLE}"\n[offload]\noffload_after_s = 0\n'
        )
    (root / "seglog.toml").write_text("")
    with Front(s3_environment) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        with served_tenants(root):
            wait_until(lambda: front.kinds["PUT index"] + front.kinds["PUT commit"] >= 4)
    by_tenant = {name: front.keys_of_prefixes[name] for name in ("acme", "other")}
    assert all(len(keys) == 1 for keys in by_tenant.values()), by_tenant
    assert by_tenant["acme"] != by_tenant["other"]
    assert front.access_keys[ACCESS_KEY] == 2  # AssumeRole, once for each
