"""The policies say what the table of roles says, on one prefix, with the conditions that they need."""

from __future__ import annotations

import json
from typing import Any

import pytest

from catalog.errors import CatalogError, InvalidArgument, InvalidName, Misuse
from catalog.tenants.policies import (
    RIGHTS,
    Condition,
    Partition,
    Target,
    TenantRole,
    actions_of,
    bucket_policy,
    compact,
    session_tag_policy,
    tenant_policy,
)

KEY = "arn:aws:kms:eu-west-1:111122223333:key/0a1b2c3d-0000-4444-8888-0123456789ab"
READS = {"s3:ListBucket", "s3:GetObject"}
WRITES = READS | {"s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"}
MAINTAINS = WRITES | {"s3:DeleteObject"}
ADMINISTERS = MAINTAINS | {"s3:ListBucketVersions", "s3:GetObjectVersion"}
OFFICE = Condition.parse("IpAddress:aws:SourceIp=10.0.0.0/8")


def actions(policy: dict[str, Any]) -> set[str]:
    allows = [statement for statement in policy["Statement"] if statement["Effect"] == "Allow"]
    return {action for statement in allows for action in statement["Action"]}


@pytest.mark.parametrize(
    ("role", "allowed"), list(zip(TenantRole, [READS, WRITES, MAINTAINS, ADMINISTERS], strict=True))
)
def test_each_role_may_do_what_the_one_before_it_may_and_more(role: TenantRole, allowed: set[str]) -> None:
    assert actions(tenant_policy("acme", role, "archive")) == allowed
    assert actions(session_tag_policy(role, "archive")) == allowed


def test_every_action_has_one_row_and_no_wildcard() -> None:
    named = [each.action for each in RIGHTS]
    assert len(named) == len(set(named))
    assert not [action for action in named if "*" in action or "?" in action]
    assert not {"s3:DeleteObjectVersion", "s3:ListBucketMultipartUploads"} & set(named)


@pytest.mark.parametrize("role", TenantRole)
def test_a_policy_reaches_the_tenants_prefix_and_nothing_else(role: TenantRole) -> None:
    on_bucket, on_objects, *_ = tenant_policy("acme", role, "archive", "prod")["Statement"]
    assert on_bucket["Resource"] == ["arn:aws:s3:::archive"]
    assert on_bucket["Condition"] == {"StringLike": {"s3:prefix": ["prod/acme/*"]}}
    assert on_objects["Resource"] == ["arn:aws:s3:::archive/prod/acme/*"]
    assert on_bucket["Effect"] == on_objects["Effect"] == "Allow"
    assert all(action.removeprefix("s3:").startswith("ListBucket") for action in on_bucket["Action"])


@pytest.mark.parametrize("role", TenantRole)
def test_a_role_that_deletes_is_denied_old_versions_and_nothing_else(role: TenantRole) -> None:
    """MinIO takes the right to delete for one to delete versions, unless a policy denies it."""
    keep = {"Sid": "OldVersionsStay", "Effect": "Deny", "Action": ["s3:DeleteObjectVersion"]}
    expected = [{**keep, "Resource": ["arn:aws:s3:::archive/*"]}] if role.includes(TenantRole.MAINTAINER) else []
    for policy in (tenant_policy("acme", role, "archive", "prod"), session_tag_policy(role, "archive")):
        assert [each for each in policy["Statement"] if each["Effect"] == "Deny"] == expected


@pytest.mark.parametrize("role", TenantRole)
def test_a_key_is_allowed_alone_and_only_with_what_the_role_needs(role: TenantRole) -> None:
    *_, on_key = tenant_policy("acme", role, "archive", kms_key=KEY)["Statement"]
    needed = {"kms:Decrypt"} if role is TenantRole.READER else {"kms:Decrypt", "kms:GenerateDataKey"}
    through_s3 = {"StringEquals": {"kms:ViaService": ["s3.eu-west-1.amazonaws.com"]}}
    allowed = {"Sid": "OwnKey", "Effect": "Allow", "Action": sorted(needed), "Resource": [KEY]}
    assert on_key == {**allowed, "Condition": through_s3}
    assert not [each for each in tenant_policy("acme", role, "archive")["Statement"] if "kms" in str(each)]


@pytest.mark.parametrize("partition", Partition)
def test_every_arn_names_the_partition_of_the_bucket(partition: Partition) -> None:
    key = KEY.replace("arn:aws:", f"arn:{partition}:")
    for policy in (
        tenant_policy("acme", TenantRole.ADMIN, "archive", kms_key=key, partition=partition),
        session_tag_policy(TenantRole.ADMIN, "archive", partition=partition),
        bucket_policy("archive", partition=partition),
    ):
        arns = [arn for statement in policy["Statement"] for arn in statement["Resource"]]
        assert {Partition.of(arn) for arn in arns} == {partition}
    others = [other for other in Partition if other is not partition]
    for other in others:
        with pytest.raises(InvalidArgument, match=f"arn:{other}:kms"):
            tenant_policy("acme", TenantRole.ADMIN, "archive", kms_key=key, partition=other)
    for arn in ("", "arn", "arn:aws-iso:iam::1:role/r", "aws"):
        with pytest.raises(InvalidArgument, match="an ARN of one of aws, aws-cn, aws-us-gov"):
            Partition.of(arn)


def test_the_key_is_for_s3_in_its_region_as_each_partition_names_it() -> None:
    def via(partition: Partition, region: str) -> list[str]:
        key = f"arn:{partition}:kms:{region}:111122223333:key/0a1b"
        *_, on_key = tenant_policy("acme", TenantRole.READER, "archive", kms_key=key, partition=partition)["Statement"]
        return list(on_key["Condition"]["StringEquals"]["kms:ViaService"])

    assert via(Partition.GOV_CLOUD, "us-gov-west-1") == ["s3.us-gov-west-1.amazonaws.com"]
    china = via(Partition.CHINA, "cn-north-1")
    assert china == ["s3.cn-north-1.amazonaws.com", "s3.cn-north-1.amazonaws.com.cn"]


@pytest.mark.parametrize("role", TenantRole)
def test_each_allow_of_a_session_tag_has_the_guards(role: TenantRole) -> None:
    statements = session_tag_policy(role, "archive", "prod", [OFFICE])["Statement"]
    for statement in [each for each in statements if each["Effect"] == "Allow"]:
        assert statement["Condition"]["Null"] == {"aws:PrincipalTag/tenant": "false"}
        assert "" in statement["Condition"]["StringNotEquals"]["aws:PrincipalTag/tenant"]
        assert "*/*" in statement["Condition"]["StringNotLike"]["aws:PrincipalTag/tenant"]
        assert statement["Condition"]["IpAddress"] == {"aws:SourceIp": ["10.0.0.0/8"]}
        assert statement["Resource"][0].endswith(("archive", "/prod/${aws:PrincipalTag/tenant}/*"))


def test_conditions_are_in_each_statement_about_s3() -> None:
    offices = Condition.parse("IpAddress:aws:SourceIp=10.0.0.0/8,192.168.0.0/16")
    policy = tenant_policy("acme", TenantRole.WRITER, "archive", kms_key=KEY, conditions=[offices])
    on_bucket, on_objects, on_key = policy["Statement"]
    network = {"aws:SourceIp": ["10.0.0.0/8", "192.168.0.0/16"]}
    assert on_bucket["Condition"] == {"StringLike": {"s3:prefix": ["acme/*"]}, "IpAddress": network}
    assert on_objects["Condition"] == {"IpAddress": network}
    assert set(on_key["Condition"]) == {"StringEquals"}


WRONG = ["", "x", "StringLike", "StringLike:s3:prefix=*", "StringLike:s3:PREFIX=*", "Like:aws:SourceIp=1"]
WRONG += ["IpAddress:aws:SourceIp=", "IpAddress:aws:SourceIp=a\nb", "IpAddress:SourceIp=1", "IpAddress:aws:Source Ip=1"]
WRONG += [
    "NullIfExists:aws:SourceIp=true",
    "IpAddress:aws:SourceIp=1,",
    "IpAddress:aws:SourceIp=1 Bool:aws:SecureTransport=true",
    "StringNotEquals:aws:principaltag/tenant=x",
    "Null:aws:PrincipalTag/Tenant=true",
    "IpAddress:aws:SourceIp\n=1",
]


@pytest.mark.parametrize("text", WRONG)
def test_a_condition_that_iam_does_not_know_or_that_widens_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="condition") as caught:
        Condition.parse(text)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("key", ["aws:SourceIp", "aws:sourceip"])
def test_two_conditions_of_one_operator_and_key_are_refused(key: str) -> None:
    both = [OFFICE, Condition("IpAddress", key, ("0.0.0.0/0",))]
    for conditions in (both, both[::-1]):
        with pytest.raises(InvalidArgument, match="the only one of IpAddress"):
            tenant_policy("acme", TenantRole.READER, "archive", conditions=conditions)
        with pytest.raises(InvalidArgument, match="the only one of IpAddress"):
            session_tag_policy(TenantRole.READER, "archive", conditions=conditions)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"tenant": "a/b"}, InvalidName),
        ({"tenant": "acme\n"}, InvalidName),
        ({"bucket": "a/b"}, InvalidArgument),
        ({"bucket": "b*"}, InvalidArgument),
        ({"bucket": "archive\n"}, InvalidArgument),
        ({"base": "a*"}, InvalidArgument),
        ({"base": "${aws:username}"}, InvalidArgument),
        ({"base": "a//b"}, InvalidArgument),
        ({"base": "../b"}, InvalidArgument),
        ({"base": "a" * 600}, InvalidArgument),
        ({"kms_key": "*"}, InvalidArgument),
        ({"kms_key": "arn:aws:kms:eu-west-1:111122223333:alias/acme"}, InvalidArgument),
        ({"kms_key": "arn:aws:kms:eu-west-1:111122223333:key/*"}, InvalidArgument),
        ({"kms_key": KEY + "\n"}, InvalidArgument),
    ],
)
def test_a_part_that_is_not_what_it_should_be_is_refused(arguments: dict[str, str], error: type[CatalogError]) -> None:
    with pytest.raises(error) as caught:
        tenant_policy(**{"tenant": "acme", "role": TenantRole.WRITER, "bucket": "archive", **arguments})  # type: ignore[arg-type]
    assert caught.value.exit_code == 2


def test_the_bucket_policy_has_the_statements_that_are_asked_for() -> None:
    commits, tls = bucket_policy("archive")["Statement"]
    assert commits["Effect"] == tls["Effect"] == "Deny"
    assert commits["Resource"] == ["arn:aws:s3:::archive/*5*/log/????????????????"]
    assert commits["Condition"]["Null"] == {"s3:if-none-match": "true"}
    assert tls["Resource"] == ["arn:aws:s3:::archive", "arn:aws:s3:::archive/*"]
    assert tls["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert bucket_policy("archive", is_tls_only=False)["Statement"] == [commits]
    assert bucket_policy("archive", is_put_if_absent=False)["Statement"] == [tls]
    with pytest.raises(InvalidArgument):
        bucket_policy("archive", is_put_if_absent=False, is_tls_only=False)


def test_a_session_policy_has_at_most_2048_characters() -> None:
    longest = tenant_policy("a" * 63, TenantRole.ADMIN, "b" * 63, "c" * 200, KEY)
    nameless = [{key: value for key, value in each.items() if key != "Sid"} for each in longest["Statement"]]
    assert json.loads(compact(longest)) == {**longest, "Statement": nameless}
    assert len(compact(tenant_policy("acme", TenantRole.ADMIN, "archive", kms_key=KEY))) < 900
    long = [Condition("IpAddress", "aws:SourceIp", tuple(f"10.0.{n}.0/24" for n in range(80)))]
    with pytest.raises(Misuse, match="2048") as caught:
        compact(tenant_policy("acme", TenantRole.ADMIN, "archive", conditions=long))
    assert caught.value.exit_code == 2


def test_the_target_of_a_right_decides_its_statement() -> None:
    for role in TenantRole:
        by_target = [actions_of(role, target) for target in Target]
        assert sorted(sum(by_target, ())) == sorted(each.action for each in RIGHTS if role.includes(each.least))
