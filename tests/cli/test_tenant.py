"""`seglog tenant policy` and `bucket-policy` print what the catalog's policies are, from a directory without data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalog.tenants.policies import Condition, Partition, TenantRole, bucket_policy, session_tag_policy, tenant_policy
from tests.worlds.command import Run

KEY = "arn:aws:kms:eu-west-1:111122223333:key/0a1b2c3d-0000-4444-8888-0123456789ab"


@pytest.mark.parametrize("role", TenantRole)
def test_a_policy_is_printed_as_iam_takes_it(run: Run, tmp_path: Path, role: TenantRole) -> None:
    plain = run("tenant", "policy", "acme", "--role", role, "--bucket", "archive", directory=None)
    assert (plain.code, plain.err) == (0, "")
    assert json.loads(plain.text) == tenant_policy("acme", role, "archive")
    words = f"tenant policy acme --role {role} --bucket archive --base prod/ --kms-key {KEY}".split()
    network, tls = "IpAddress:aws:SourceIp=10.0.0.0/8,10.9.0.1/32", "Bool:aws:SecureTransport=true"
    for first, second in ((network, tls), (tls, network)):
        full = run("--json", *words, "--condition", first, f"--condition={second}", directory=None)
        made = json.loads(full.text)
        assert (made["kind"], made["tenant"], made["role"]) == ("tenant_policy", "acme", role)
        parsed = [Condition.parse(each) for each in (network, tls)]
        assert made["policy"] == tenant_policy("acme", role, "archive", "prod", KEY, parsed)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "conditions",
    [
        ("",),
        ("IpAddress:aws:SourceIp=10.0.0.0/8", ""),
        ("", "IpAddress:aws:SourceIp=10.0.0.0/8"),
        ("IpAddress:aws:SourceIp=10.0.0.0/8", "IpAddress:aws:sourceip=0.0.0.0/0"),
        ("IpAddress:aws:SourceIp=10.0.0.0/8 Bool:aws:SecureTransport=true",),
        ("NullIfExists:aws:SourceIp=true",),
    ],
)
def test_a_condition_that_would_say_less_than_it_seems_is_refused(run: Run, conditions: tuple[str, ...]) -> None:
    options = [word for each in conditions for word in ("--condition", each)]
    done = run("tenant", "policy", "acme", "--role", "reader", "--bucket", "archive", *options)
    assert (done.code, done.out) == (2, b"")
    assert "condition" in done.err


def test_session_tags_take_the_place_of_the_name(run: Run) -> None:
    done = run(*["tenant", "policy", "--session-tags", "--role", "writer", "--bucket", "archive"])
    assert json.loads(done.text) == session_tag_policy(TenantRole.WRITER, "archive")


def test_a_bucket_policy_has_the_statements_that_are_asked_for(run: Run) -> None:
    both = bucket_policy("archive")
    for words, expected in (
        ("", both),
        ("--put-if-absent --tls-only", both),
        ("--put-if-absent", bucket_policy("archive", is_tls_only=False)),
        ("--tls-only", bucket_policy("archive", is_put_if_absent=False)),
    ):
        assert json.loads(run("tenant", "bucket-policy", "archive", *words.split()).text) == expected


def test_the_partition_of_the_bucket_is_an_option(run: Run) -> None:
    china, role = Partition.CHINA, TenantRole.READER
    for words, expected in (
        ("policy acme --role reader --bucket archive", tenant_policy("acme", role, "archive", partition=china)),
        ("policy --session-tags --role reader --bucket archive", session_tag_policy(role, "archive", partition=china)),
        ("bucket-policy archive", bucket_policy("archive", partition=china)),
    ):
        assert json.loads(run("tenant", *words.split(), "--partition", "aws-cn").text) == expected


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("policy --role reader --bucket archive", "--session-tags"),
        ("policy acme --role reader --bucket archive --session-tags", "Leave one of the two out"),
        (f"policy --role reader --bucket archive --session-tags --kms-key {KEY}", "a key belongs to one tenant"),
        ("policy tmp --role reader --bucket archive", "reserved"),
        ("policy acme --role owner --bucket archive", "reader, writer, maintainer or admin"),
        ("policy acme --role reader --bucket archive --base a*", "such as prod/eu/"),
        ("policy acme --role reader --bucket archive --condition StringLike:s3:prefix=*", "uses itself"),
        ("policy acme --role reader --bucket archive --partition aws-iso", "aws, aws-cn or aws-us-gov"),
        (f"policy acme --role reader --bucket archive --partition aws-cn --kms-key {KEY}", "arn:aws-cn:kms:"),
        ("policy acme --bucket archive", "needs --role"),
        ("policy acme --role reader", "needs --bucket"),
        ("bucket-policy B", "the name of a bucket"),
    ],
)
def test_bad_input_is_refused_with_a_hint(run: Run, words: str, part: str) -> None:
    done = run("tenant", *words.split())
    assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)
    assert part in done.err
