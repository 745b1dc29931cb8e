"""Every policy that seglog prints passes the linter, and the linter finds each kind of mistake."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.tenants.policies import Condition, TenantRole, bucket_policy, session_tag_policy, tenant_policy
from tests import work
from tests.iam.linter import findings

LOCALSTACK = Path(__file__).parents[2] / "localstack"
KEY = "arn:aws:kms:eu-west-1:111122223333:key/0a1b2c3d-0000-4444-8888-0123456789ab"
CONDITIONS = (
    [],
    [Condition.parse("IpAddress:aws:SourceIp=10.0.0.0/8"), Condition.parse("Bool:aws:SecureTransport=true")],
)


def policies() -> Iterator[dict[str, Any]]:
    for role, base, conditions in itertools.product(TenantRole, ("", "prod/eu"), CONDITIONS):
        yield session_tag_policy(role, "archive", base, conditions)
        for key in (None, KEY):
            yield tenant_policy("acme", role, "archive", base, key, conditions)
    for switches in ((True, True), (True, False), (False, True)):
        yield bucket_policy("archive", *switches)
    for path in sorted(LOCALSTACK.glob("**/*.json")):
        yield json.loads(path.read_text().replace("@BUCKET@", "archive").replace("@TENANT@", "acme"))


def test_every_policy_passes() -> None:
    found = [findings(each) for each in policies()]
    assert len(found) == 56
    assert [each for each in found if each] == []
    work.tell(f"{len(found)} policies linted")


def test_the_policies_of_the_code_are_those_that_are_linted() -> None:
    assert len(list(LOCALSTACK.glob("**/*.json"))) == 5


MISTAKES: list[dict[str, Any]] = [
    {"Action": ["s3:GetObjekt"]},
    {"Action": ["s3:Get*"]},
    {"Action": ["s3:ListBucket"]},
    {"Action": ["s3:PutObjectAcl"]},
    {"Action": ["kms:Decrypt"]},
    {"Resource": ["arn:aws:s3:::archive"]},
    {"Resource": ["*"]},
    {"Resource": ["arn:aws:s3:::*/acme/*"]},
    {"Condition": {"StringLike": {"s3:prefix": ["acme/*"]}}},
    {"Condition": {"StringLik": {"aws:SourceIp": ["10.0.0.0/8"]}}},
    {"NotAction": ["s3:GetObject"]},
    {"Effect": "Perhaps"},
    {"Sid": "Two words"},
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_kind_of_mistake_is_found(mistake: dict[str, Any]) -> None:
    policy = tenant_policy("acme", TenantRole.READER, "archive")
    policy["Statement"][1] = {**policy["Statement"][1], **mistake}
    assert findings(policy)
    assert findings({**tenant_policy("acme", TenantRole.READER, "archive"), "Version": "2008-10-17"})
