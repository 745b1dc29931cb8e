"""The recorder of requests finds each request that leaves the prefix of its store, and no other."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from catalog.format.keys import Key
from catalog.objects.s3 import S3Store
from tests.s3_recorder import Seen, outside
from tests.s3_server import not_of_minio, own_prefixes, taken_requests
from tests.seams.catalog import misplace

INSIDE = [
    Seen("GET", "b", "acme/refs/t/main", {}),
    Seen("PUT", "b", "acme/x", {}, ("acme/y",)),
    Seen("GET", "b", "", {"list-type": "2", "prefix": "acme/"}),
    Seen("GET", "b", "", {"uploads": "", "prefix": "acme/refs/"}),
    Seen("POST", "b", "", {"delete": ""}, ("acme/x", "acme/y")),
]
OUTSIDE = [
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


@pytest.mark.parametrize("seen", OUTSIDE, ids=str)
def test_any_other_request_is_outside(seen: Seen) -> None:
    assert outside(seen, "acme/")


@not_of_minio
def test_a_store_with_a_broken_key_is_found(s3_environment: str, s3_remote: str) -> None:
    store = S3Store(s3_remote)
    store.put_new(Key("refs/t/main"), b"x")
    list(store.list("refs/"))
    assert taken_requests(s3_environment) == (2, [])
    misplace(store, "acme2/")
    store.put_new(Key("refs/t/main"), b"x")
    store.get(Key("refs/t/main"))
    list(store.list("refs/"))
    store.delete_many([Key("refs/t/main")])
    count, found = taken_requests(s3_environment)
    assert (count, len(found)) == (4, 4)
    assert all("acme2/refs/" in each for each in found)
    store.close()


@not_of_minio
def test_an_access_key_has_its_own_prefix(s3_environment: str, s3_remote: str, s3_client: Any) -> None:
    bucket = s3_remote.split("/")[2]
    own_prefixes(s3_environment, **{"key-of-globex": ["globex/"]})
    s3_client.put_object(Bucket=bucket, Key="globex/x", Body=b"x")
    client = boto3.client("s3", aws_access_key_id="key-of-globex", aws_secret_access_key="x")
    client.get_object(Bucket=bucket, Key="globex/x")
    assert taken_requests(s3_environment) == (1, [])
    client.put_object(Bucket=bucket, Key="acme/x", Body=b"x")
    [found] = taken_requests(s3_environment)[1]
    assert "acme/x" in found
    assert found.endswith("by key-of-globex")
