"""The recorder of requests finds each request that leaves the prefix of its store, and no other."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from catalog.format.keys import Key
from catalog.objects.s3 import S3Store
from catalog.tenants.policies import TenantRole, tenant_policy
from offload.tenants.credentials import assume_role
from offload.tenants.sts_request import TenantAccess
from tests import work
from tests.s3_recorder import Seen, Taken, outside, prefixes_of
from tests.s3_server import (
    OUTSIDE_PREFIX,
    may_be_checked,
    not_of_minio,
    of_several_tenants,
    own_prefixes,
    report_requests,
    taken_requests,
)
from tests.seams.catalog import misplace

INSIDE = [
    Seen("GET", "b", "acme/refs/t/main", {}),
    Seen("PUT", "b", "acme/x", {}, ("acme/y",)),
    Seen("GET", "b", "", {"list-type": "2", "prefix": "acme/"}),
    Seen("GET", "b", "", {"uploads": "", "prefix": "acme/refs/"}),
    Seen("POST", "b", "", {"delete": ""}, ("acme/x", "acme/y")),
]
LEAVING = [
    Seen("GET", "b", "globex/x", {}),
    Seen("GET", "b", "acme", {}),
    Seen("GET", "b", "acme2/x", {}),
    Seen("PUT", "b", "acme/x", {}, ("globex/y",)),
    Seen("HEAD", "b", "", {}),
    Seen("PUT", "b", "", {}),
    Seen("GET", "b", "", {}),
    Seen("GET", "b", "", {"list-type": "2"}),
    Seen("GET", "b", "", {"list-type": "2", "prefix": ""}),
    Seen("GET", "b", "", {"list-type": "2", "prefix": "acme"}),
    Seen("GET", "b", "", {"versions": "", "prefix": "globex/"}),
    Seen("POST", "b", "", {"delete": ""}, ("acme/x", "acme2/y")),
    Seen("POST", "b", "", {"delete": ""}),
    Seen("GET", "b", "", {"location": ""}),
]


@pytest.mark.parametrize("seen", INSIDE, ids=str)
def test_a_request_in_the_prefix_is_inside(seen: Seen) -> None:
    assert not outside(seen, "acme/")


@pytest.mark.parametrize("seen", LEAVING, ids=str)
def test_any_other_request_is_outside(seen: Seen) -> None:
    assert outside(seen, "acme/")


@not_of_minio
def test_a_store_with_a_broken_key_is_found(s3_environment: str, s3_remote: str) -> None:
    store = S3Store(s3_remote)
    store.put_new(Key("refs/t/main"), b"x")
    list(store.list("refs/"))
    assert taken_requests(s3_environment) == Taken(2, 0, 0, [])
    misplace(store, "acme2/")
    store.put_new(Key("refs/t/main"), b"x")
    store.get(Key("refs/t/main"))
    list(store.list("refs/"))
    store.delete_many([Key("refs/t/main")])
    taken = taken_requests(s3_environment)
    assert (taken.requests, taken.outside, len(taken.examples)) == (4, 4, 4)
    assert all("acme2/refs/" in each for each in taken.examples)
    store.close()


def client_of(access_key: str, token: str | None = None) -> Any:
    return boto3.client("s3", aws_access_key_id=access_key, aws_secret_access_key="x", aws_session_token=token)


@not_of_minio
def test_an_access_key_has_its_own_prefix(s3_environment: str, s3_remote: str, s3_client: Any) -> None:
    bucket = s3_remote.split("/")[2]
    own_prefixes(s3_environment, **{"key-of-globex": ["globex/"]})
    s3_client.put_object(Bucket=bucket, Key="globex/x", Body=b"x")
    client = client_of("key-of-globex")
    client.get_object(Bucket=bucket, Key="globex/x")
    assert taken_requests(s3_environment) == Taken(1, 1, 0, [])
    client.put_object(Bucket=bucket, Key="acme/x", Body=b"x")
    taken = taken_requests(s3_environment, is_last=True)
    [found] = taken.examples
    assert "acme/x" in found
    assert found.endswith("by key-of-globex")
    client.put_object(Bucket=bucket, Key="acme/x", Body=b"x")  # the recorder has forgotten the key's prefix
    assert taken_requests(s3_environment) == Taken(1, 0, 0, [])


@not_of_minio
def test_a_key_of_sts_belongs_to_the_prefix_of_its_session_policy(s3_environment: str, s3_remote: str) -> None:
    bucket = s3_remote.split("/")[2]
    policy = tenant_policy("globex", TenantRole.READER, bucket, "prod/")
    assert prefixes_of(json.dumps(policy)) == ["prod/globex/"]
    assert prefixes_of("") == []
    access = TenantAccess("globex", "arn:aws:iam::123456789012:role/tenants", 900, json.dumps(policy))
    key = assume_role(access).credentials.access_key
    client = client_of(key)
    client.list_objects_v2(Bucket=bucket, Prefix="prod/globex/")
    assert taken_requests(s3_environment) == Taken(1, 1, 0, [])
    for prefix in ("acme/", "globex/", "prod/globex2/"):
        client.list_objects_v2(Bucket=bucket, Prefix=prefix)
    assert taken_requests(s3_environment).outside == 3


@not_of_minio
def test_in_a_bucket_of_several_tenants_each_key_has_a_tenant(s3_environment: str, s3_remote: str) -> None:
    bucket = s3_remote.split("/")[2]
    own_prefixes(s3_environment, **{"key-of-acme": ["acme/"], bucket: ["acme/", "globex/"]})
    client_of("of-nobody").list_objects_v2(Bucket=bucket, Prefix="acme/")
    assert taken_requests(s3_environment).outside == 0
    of_several_tenants(s3_environment, bucket)
    client_of("key-of-acme").list_objects_v2(Bucket=bucket, Prefix="acme/")
    assert taken_requests(s3_environment) == Taken(1, 1, 0, [])
    client_of("of-nobody").list_objects_v2(Bucket=bucket, Prefix="acme/")
    client_of("key-of-acme").list_objects_v2(Bucket=bucket, Prefix="globex/")
    assert taken_requests(s3_environment).outside == 2


@not_of_minio
def test_a_list_without_a_prefix_is_inside_only_as_a_check_that_the_test_makes(
    s3_environment: str, s3_remote: str
) -> None:
    bucket = s3_remote.split("/")[2]
    client = client_of("of-a-tenant")
    client.list_objects_v2(Bucket=bucket, MaxKeys=1)
    assert taken_requests(s3_environment).outside == 1
    may_be_checked(s3_environment, bucket)
    client.list_objects_v2(Bucket=bucket, MaxKeys=1)
    assert taken_requests(s3_environment).outside == 0
    client.list_objects_v2(Bucket=bucket)
    client.list_objects_v2(Bucket=bucket, Prefix="", MaxKeys=1)
    assert taken_requests(s3_environment).outside == 2


@not_of_minio
def test_the_run_fails_if_a_request_left_its_prefix(s3_environment: str, s3_remote: str) -> None:
    client_of("of-a-tenant").list_objects_v2(Bucket=s3_remote.split("/")[2])
    with pytest.raises(pytest.fail.Exception, match="1 requests left the prefix of their store, in a test"):
        report_requests(s3_environment, "a test")
    work.count(OUTSIDE_PREFIX, -1)
    report_requests(s3_environment, "a test")
