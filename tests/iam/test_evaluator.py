"""The reference evaluator judges hand-written cases as the IAM reference says, and then our policies."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.tenants.names import RESERVED
from catalog.tenants.policies import RIGHTS, Target, TenantRole, bucket_policy, session_tag_policy, tenant_policy
from tests.iam.evaluator import Request, Unsupported, is_allowed

BUCKET = "arn:aws:s3:::archive"
TAG = "aws:PrincipalTag/tenant"
OBJECT_ACTIONS = [each.action for each in RIGHTS if each.target is Target.OBJECTS]


def policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(**elements: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{BUCKET}/*", **elements}


def get(key: str, **context: str) -> Request:
    return Request("s3:GetObject", f"{BUCKET}/{key}", {name.replace("__", ":"): each for name, each in context.items()})


def met(condition: dict[str, Any], **context: str) -> bool:
    return is_allowed([policy(allow(Condition=condition))], get("a", **context))


def test_a_deny_wins_and_nothing_is_allowed_without_an_allow() -> None:
    deny = {**allow(Resource=f"{BUCKET}/secret/*"), "Effect": "Deny"}
    assert is_allowed([policy(allow()), policy(deny)], get("open/a"))
    assert not is_allowed([policy(allow()), policy(deny)], get("secret/a"))
    assert not is_allowed([policy(deny)], get("open/a"))
    assert not is_allowed([], get("open/a"))


def test_actions_match_in_any_case_and_resources_as_they_are() -> None:
    assert is_allowed([policy(allow(Action=["s3:getobject"]))], get("a"))
    assert is_allowed([policy(allow(Action="s3:Get*"))], get("a"))
    assert not is_allowed([policy(allow(Action="s3:Get*"))], Request("s3:PutObject", f"{BUCKET}/a"))
    assert not is_allowed([policy(allow(Resource=f"{BUCKET}/A*"))], get("a"))
    assert not is_allowed([policy(allow(Resource=f"{BUCKET}/a."))], get("ab"))


MATCHES = [("a/*", "a/", True), ("a/*", "a/b/c", True), ("a/*", "a", False), ("a/*", "a1/b", False)]
MATCHES += [("a?c", "ac", False), ("*", "", True), ("a/*", "a/b\nc", True), ("a", "a\n", False), ("a${*}", "a*", True)]
MATCHES += [("a${*}", "ab", False), ("[ab]", "a", False), ("a?c", "abc", True)]


@pytest.mark.parametrize(("pattern", "text", "is_match"), MATCHES)
def test_wildcards(pattern: str, text: str, is_match: bool) -> None:
    assert met({"StringLike": {"s3:prefix": pattern}}, s3__prefix=text) is is_match


JUDGED = [("StringEquals", "a", True), ("StringEquals", "A", False), ("StringEquals", "cx", False)]
JUDGED += [("StringEquals", None, False), ("StringNotEquals", "a", False), ("StringNotEquals", "x", True)]
JUDGED += [("StringNotEquals", None, True), ("StringLike", "cx", True), ("StringLike", None, False)]
JUDGED += [("StringNotLike", "cx", False), ("StringNotLike", "x", True), ("StringNotLike", None, True)]


@pytest.mark.parametrize(("operator", "value", "is_met"), JUDGED)
def test_values_are_alternatives_and_negation_means_none(operator: str, value: str | None, is_met: bool) -> None:
    context = {} if value is None else {"s3__prefix": value}
    assert met({operator: {"S3:Prefix": ["a", "b", "c*"]}}, **context) is is_met


def test_null_and_bool() -> None:
    assert met({"Null": {"s3:if-none-match": "true"}})
    assert not met({"Null": {"s3:if-none-match": "true"}}, **{"s3__if-none-match": "*"})
    assert not met({"Null": {"s3:if-none-match": "false"}})
    assert met({"Null": {"s3:if-none-match": "false"}}, **{"s3__if-none-match": ""})
    assert met({"Bool": {"aws:SecureTransport": "true"}}, aws__SecureTransport="True")
    assert not met({"Bool": {"aws:SecureTransport": "true"}})
    assert not met({"Bool": {"aws:SecureTransport": "false"}})


def test_all_keys_and_all_operators_must_be_met() -> None:
    both = {"StringEquals": {"s3:prefix": "a"}, "Null": {"s3:delimiter": "true", "s3:max-keys": "true"}}
    assert met(both, s3__prefix="a")
    assert not met(both, s3__prefix="b")
    assert not met(both, s3__prefix="a", **{"s3__max-keys": "1"})


def test_a_variable_is_its_value_and_without_one_the_statement_vanishes() -> None:
    own = allow(Resource=f"{BUCKET}/${{{TAG}}}/*")
    tagged = {"aws__PrincipalTag/tenant": "acme"}
    assert is_allowed([policy(own)], get("acme/a", **tagged))
    assert not is_allowed([policy(own)], get("globex/a", **tagged))
    assert not is_allowed([policy(own)], get("acme/a"))
    assert not is_allowed([policy(own)], get("acme/a", **{"aws__PrincipalTag/tenant": "*"}))
    denied = {**own, "Effect": "Deny"}
    assert not is_allowed([policy(allow(), denied)], get("acme/a", **tagged))
    assert is_allowed([policy(allow(), denied)], get("acme/a"))
    like = allow(Condition={"StringNotLike": {"s3:prefix": f"${{{TAG}}}*"}})
    assert not is_allowed([policy(like)], get("a"))


UNKNOWN = [allow(Condition={"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}), {**allow(), "NotAction": "s3:*"}]
UNKNOWN += [allow(Principal={"AWS": "1"}), allow(Condition={"Bool": {"aws:SecureTransport": "1"}})]
UNKNOWN += [allow(Condition={"StringEqualsIfExists": {"s3:prefix": "a"}}), allow(Effect="Maybe")]


@pytest.mark.parametrize("statement", UNKNOWN)
def test_the_evaluator_refuses_what_it_does_not_know(statement: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        is_allowed([policy(statement)], get("a", aws__SecureTransport="true"))


# ---------------------------------------------------------------- our policies


def lists(prefix: str | None, **context: str) -> Request:
    found = {} if prefix is None else {"s3:prefix": prefix}
    return Request(
        "s3:ListBucket", BUCKET, {**found, **{name.replace("__", ":"): each for name, each in context.items()}}
    )


@pytest.mark.parametrize("role", TenantRole)
def test_a_tenant_lists_its_own_prefix_and_nothing_shorter(role: TenantRole) -> None:
    own = [tenant_policy("tenant1", role, "archive")]
    for prefix in ("tenant1/", "tenant1/refs/", "tenant1/5"):
        assert is_allowed(own, lists(prefix))
    for prefix in (None, "", "t", "tenant1", "tenant10/", "tenant10", "tenant2/", "*", "/tenant1/", "Tenant1/"):
        assert not is_allowed(own, lists(prefix))
    assert not is_allowed(own, Request("s3:ListBucket", "arn:aws:s3:::other", {"s3:prefix": "tenant1/"}))


@pytest.mark.parametrize("role", TenantRole)
def test_a_role_does_what_the_table_says_on_its_own_objects(role: TenantRole) -> None:
    own = [tenant_policy("tenant1", role, "archive")]
    others = ["s3:DeleteObjectVersion", "s3:PutObjectAcl", "s3:ListBucketMultipartUploads", "s3:PutBucketPolicy"]
    for action in [*OBJECT_ACTIONS, *others]:
        expected = any(each.action == action and role.includes(each.least) for each in RIGHTS)
        assert is_allowed(own, Request(action, f"{BUCKET}/tenant1/x")) is expected
        for key in ("tenant10/x", "tenant1", "tenant2/x", "x", "tenant2/tenant1/x"):
            assert not is_allowed(own, Request(action, f"{BUCKET}/{key}"))


NO_NAMES = [
    "",
    "tenant1/sub",
    "/",
    "tenant1/",
    "_sys",
    "sys_",
    "-sys",
    "sys-",
    "Acme",
    "acmE",
    "..",
    ".",
    " ",
    "acme.bak",
]
NO_NAMES += ["@", "a@b", "a b", "a:b", "a=b", "a+b", "a" * 64, "a" * 256]


@pytest.mark.parametrize("tag", [None, *NO_NAMES, *sorted(RESERVED)])
@pytest.mark.parametrize("role", TenantRole)
def test_a_session_without_a_good_tag_gets_nothing(role: TenantRole, tag: str | None) -> None:
    shared = [session_tag_policy(role, "archive")]
    context = {} if tag is None else {TAG: tag}
    for prefix in ("", "/", "tenant1/", "tenant1/sub/", "x", f"{tag}/", f"{tag}/x"):
        assert not is_allowed(shared, Request("s3:ListBucket", BUCKET, {**context, "s3:prefix": prefix}))
        for action in OBJECT_ACTIONS:
            assert not is_allowed(shared, Request(action, f"{BUCKET}/{prefix}x", context))


@pytest.mark.parametrize("tag", ["logs", "\u0430cme", "\u00e9"])
def test_a_tag_that_the_policy_cannot_refuse_reaches_its_own_text_and_a_base_bounds_it(tag: str) -> None:
    """IAM has no pattern for letters beyond ASCII, and cannot know which names are tenants."""
    for base in ("", "prod/"):
        shared = [session_tag_policy(TenantRole.WRITER, "archive", base)]
        for key, expected in ((f"prod/{tag}/x", base != ""), (f"{tag}/x", base == ""), ("acme/x", False)):
            assert is_allowed(shared, Request("s3:PutObject", f"{BUCKET}/{key}", {TAG: tag})) is expected


def test_the_longest_name_is_a_good_tag() -> None:
    for tag in ("a" * 63, "a-b_c", "0", "a9"):
        shared = [session_tag_policy(TenantRole.WRITER, "archive")]
        assert is_allowed(shared, Request("s3:PutObject", f"{BUCKET}/{tag}/x", {TAG: tag}))


@pytest.mark.parametrize("role", TenantRole)
def test_the_key_is_for_s3_in_its_region_alone(role: TenantRole) -> None:
    key = "arn:aws:kms:eu-west-1:111122223333:key/0a1b2c3d-0000-4444-8888-0123456789ab"
    own = [tenant_policy("acme", role, "archive", kms_key=key)]
    for through, expected in (
        ("s3.eu-west-1.amazonaws.com", True),
        ("s3.us-east-1.amazonaws.com", False),
        ("ec2.eu-west-1.amazonaws.com", False),
        (None, False),
    ):
        context = {} if through is None else {"kms:ViaService": through}
        assert is_allowed(own, Request("kms:Decrypt", key, context)) is expected
        assert not is_allowed(own, Request("kms:Decrypt", f"{key}0", context))


def test_a_session_tag_reaches_its_own_tenant() -> None:
    shared = [session_tag_policy(TenantRole.WRITER, "archive", "prod")]
    tag = {TAG: "tenant1"}
    assert is_allowed(shared, Request("s3:ListBucket", BUCKET, {**tag, "s3:prefix": "prod/tenant1/"}))
    assert is_allowed(shared, Request("s3:PutObject", f"{BUCKET}/prod/tenant1/x", tag))
    assert not is_allowed(shared, Request("s3:DeleteObject", f"{BUCKET}/prod/tenant1/x", tag))
    for key in ("prod/tenant10/x", "prod/tenant2/x", "tenant1/x", "prod/x"):
        assert not is_allowed(shared, Request("s3:PutObject", f"{BUCKET}/{key}", tag))


COMMIT = "acme/5rMJhdYXJ3-2e64STQSCVT8Yvy/log/FFFFFFFFFFFFFFFE"


@pytest.mark.parametrize(
    ("key", "context", "expected"),
    [
        (COMMIT, {}, False),
        (COMMIT, {"s3:if-none-match": "*"}, True),
        (COMMIT, {"s3:if-match": "etag"}, False),
        (COMMIT, {"s3:if-match": "etag", "s3:if-none-match": "*"}, True),
        (COMMIT.removeprefix("acme/"), {}, False),
        (f"prod/{COMMIT}", {}, False),
        (COMMIT, {"s3:ObjectCreationOperation": "false"}, True),  # a part of an upload
        ("acme/5rMJhdYXJ3-2e64STQSCVT8Yvy/segments/x", {}, True),
        ("acme/cold/log/00000001/0000000000000001.data", {}, True),
        ("acme5/cold/log/00000001/0000000000000001.data", {}, True),
    ],
)
def test_the_bucket_refuses_a_put_of_a_commit_without_a_condition(
    key: str, context: dict[str, str], expected: bool
) -> None:
    bucket = policy({"Effect": "Allow", "Action": "s3:*", "Resource": f"{BUCKET}/*"})
    put = Request("s3:PutObject", f"{BUCKET}/{key}", {"s3:ObjectCreationOperation": "true", **context})
    assert is_allowed([bucket, bucket_policy("archive", is_tls_only=False)], put) is expected


def test_the_bucket_refuses_plain_http() -> None:
    bucket = policy({"Effect": "Allow", "Action": "s3:*", "Resource": [BUCKET, f"{BUCKET}/*"]})
    both = [bucket, bucket_policy("archive")]
    for secure, expected in (("true", True), ("false", False)):
        assert is_allowed(both, get("acme/x", aws__SecureTransport=secure)) is expected
        assert is_allowed(both, lists("acme/", aws__SecureTransport=secure)) is expected
