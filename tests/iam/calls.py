"""The calls of S3 that the matrix makes, and the actions of IAM that AWS asks for each.

seglog makes some of the calls, and an attacker tries the others. The actions come from the "Service Authorization
Reference" of Amazon S3 and of the pages of the calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from botocore.exceptions import ClientError

__all__ = ["CALLS", "At", "Attempt", "Call", "Kind", "Need", "Spot"]


class Kind(StrEnum):
    """The argument of a call that says its place."""

    KEY = "key"
    PREFIX = "prefix"
    BUCKET = "bucket"


class At(StrEnum):
    """The resource on which a call needs an action."""

    HERE = "the key of the call"
    OWN = "a key of the tenant's own"
    LIST = "the bucket, with the prefix of the call"
    BUCKET = "the bucket"


@dataclass(frozen=True, slots=True)
class Need:
    action: str
    at: At = At.HERE


@dataclass(frozen=True, slots=True)
class Spot:
    """A key with an object, an old version of it, and an open upload with one part."""

    key: str
    version_id: str
    etag: str
    upload_id: str
    part_etag: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call at one place: `here` is the spot of the place, `own` one in the tenant's prefix."""

    client: Any
    bucket: str
    here: Spot
    own: Spot
    prefix: str | None

    def ask(self, method: str, **given: Any) -> Any:
        return getattr(self.client, method)(Bucket=self.bucket, **given)

    def at_key(self, method: str, **given: Any) -> Any:
        return self.ask(method, Key=self.here.key, **given)

    def of_version(self, method: str) -> Any:
        return self.at_key(method, VersionId=self.here.version_id)

    def listed(self, method: str, **given: Any) -> Any:
        return self.ask(method, **({} if self.prefix is None else {"Prefix": self.prefix}), **given)

    def of_upload(self, method: str, **given: Any) -> Any:
        return self.at_key(method, UploadId=self.here.upload_id, **given)

    def source(self, spot: Spot) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": spot.key}

    def delete_many(self, *, version: bool) -> None:
        """Delete by DeleteObjects, which answers 200 with an error for each key."""
        named = {"Key": self.here.key, **({"VersionId": self.here.version_id} if version else {})}
        for error in self.ask("delete_objects", Delete={"Objects": [named]}).get("Errors", ()):
            raise ClientError({"Error": error, "ResponseMetadata": {"HTTPStatusCode": 403}}, "DeleteObjects")


@dataclass(frozen=True, slots=True)
class Call:
    """`after` has the errors that a server gives after it allowed the call. `changes`: the place needs new objects."""

    name: str
    kind: Kind
    needs: tuple[Need, ...]
    send: Callable[[Attempt], object]
    changes: bool = False
    after: frozenset[str] = frozenset()


def _key(name: str, actions: str, send: Callable[[Attempt], object], changes: bool = False, own: str = "") -> Call:
    needs = [Need(f"s3:{action}") for action in actions.split()]
    needs += [Need(f"s3:{action}", At.OWN) for action in own.split()]
    return Call(name, Kind.KEY, tuple(needs), send, changes)


def _list(name: str, action: str, method: str, **given: str) -> Call:
    return Call(name, Kind.PREFIX, (Need(f"s3:{action}", At.LIST),), lambda it: it.listed(method, **given))


def _bucket(name: str, method: str, *after: str, action: str = "", **given: object) -> Call:
    needs = (Need(f"s3:{action or name}", At.BUCKET),)
    return Call(name, Kind.BUCKET, needs, lambda it: it.ask(method, **given), True, frozenset(after))


_OPEN = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::archive/*"]}
_OPEN_POLICY = json.dumps({"Version": "2012-10-17", "Statement": [_OPEN]})
_RULE = {"ID": "all", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}
_GRANT = {"Owner": {"ID": "x"}, "Grants": []}
_LOCKED = {"Mode": "GOVERNANCE", "RetainUntilDate": "2030-01-01T00:00:00Z"}
_HELD = {"Status": "ON"}
_TAGS = {"TagSet": [{"Key": "a", "Value": "b"}]}

CALLS = (
    _list("ListObjectsV2", "ListBucket", "list_objects_v2"),
    _list("ListObjectsV2 with delimiter", "ListBucket", "list_objects_v2", Delimiter="/"),
    _list("ListObjects", "ListBucket", "list_objects"),
    _list("ListObjectVersions", "ListBucketVersions", "list_object_versions"),
    _list("ListMultipartUploads", "ListBucketMultipartUploads", "list_multipart_uploads"),
    _key("GetObject", "GetObject", lambda it: it.at_key("get_object")["Body"].read()),
    _key("GetObject of a version", "GetObjectVersion", lambda it: it.of_version("get_object")["Body"].read()),
    _key("HeadObject", "GetObject", lambda it: it.at_key("head_object")),
    _key("HeadObject of a version", "GetObjectVersion", lambda it: it.of_version("head_object")),
    _key(
        "GetObjectAttributes",
        "GetObject GetObjectAttributes",
        lambda it: it.at_key("get_object_attributes", ObjectAttributes=["ETag"]),
    ),
    _key("PutObject", "PutObject", lambda it: it.at_key("put_object", Body=b"new"), changes=True),
    _key(
        "PutObject if none matches",
        "PutObject",
        lambda it: it.ask("put_object", Key=f"{it.here.key}-{it.here.upload_id}", Body=b"new", IfNoneMatch="*"),
        changes=True,
    ),
    _key(
        "PutObject if it matches",
        "PutObject GetObject",
        lambda it: it.at_key("put_object", Body=b"new", IfMatch=it.here.etag),
        changes=True,
    ),
    _key(
        "PutObject with tags",
        "PutObject PutObjectTagging",
        lambda it: it.at_key("put_object", Body=b"new", Tagging="a=b"),
        changes=True,
    ),
    _key(
        "PutObject with a lock",
        "PutObject PutObjectRetention",
        lambda it: it.at_key(
            "put_object", Body=b"new", ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate="2099-01-01T00:00:00Z"
        ),
        changes=True,
    ),
    _key(
        "PutObject with an ACL",
        "PutObject PutObjectAcl",
        lambda it: it.at_key("put_object", Body=b"new", ACL="public-read"),
        changes=True,
    ),
    _key(
        "CopyObject from there",
        "GetObject",
        lambda it: it.ask("copy_object", Key=f"{it.own.key}-copy", CopySource=it.source(it.here)),
        own="PutObject",
    ),
    _key(
        "CopyObject to there",
        "PutObject",
        lambda it: it.ask("copy_object", Key=f"{it.here.key}-copy", CopySource=it.source(it.own)),
        own="GetObject",
    ),
    _key("CreateMultipartUpload", "PutObject", lambda it: it.at_key("create_multipart_upload")),
    _key("UploadPart", "PutObject", lambda it: it.of_upload("upload_part", PartNumber=2, Body=b"part")),
    _key(
        "UploadPartCopy from there",
        "GetObject",
        lambda it: it.ask(
            "upload_part_copy",
            Key=it.own.key,
            UploadId=it.own.upload_id,
            PartNumber=3,
            CopySource=it.source(it.here),
        ),
        own="PutObject",
    ),
    _key(
        "UploadPartCopy to there",
        "PutObject",
        lambda it: it.of_upload("upload_part_copy", PartNumber=3, CopySource=it.source(it.own)),
        own="GetObject",
    ),
    _key("ListParts", "ListMultipartUploadParts", lambda it: it.of_upload("list_parts")),
    _key(
        "CompleteMultipartUpload",
        "PutObject",
        lambda it: it.of_upload(
            "complete_multipart_upload",
            MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": it.here.part_etag}]},
        ),
        changes=True,
    ),
    _key("AbortMultipartUpload", "AbortMultipartUpload", lambda it: it.of_upload("abort_multipart_upload"), True),
    _key("DeleteObject", "DeleteObject", lambda it: it.at_key("delete_object"), True),
    _key("DeleteObjects", "DeleteObject", lambda it: it.delete_many(version=False), True),
    _key("DeleteObject of a version", "DeleteObjectVersion", lambda it: it.of_version("delete_object"), True),
    _key("DeleteObjects of versions", "DeleteObjectVersion", lambda it: it.delete_many(version=True), True),
    _key("GetObjectTagging", "GetObjectTagging", lambda it: it.at_key("get_object_tagging")),
    _key("PutObjectTagging", "PutObjectTagging", lambda it: it.at_key("put_object_tagging", Tagging=_TAGS)),
    _key("DeleteObjectTagging", "DeleteObjectTagging", lambda it: it.at_key("delete_object_tagging")),
    _key("GetObjectAcl", "GetObjectAcl", lambda it: it.at_key("get_object_acl")),
    _key("PutObjectAcl", "PutObjectAcl", lambda it: it.at_key("put_object_acl", ACL="public-read")),
    _key("GetObjectRetention", "GetObjectRetention", lambda it: it.at_key("get_object_retention")),
    _key("PutObjectRetention", "PutObjectRetention", lambda it: it.at_key("put_object_retention", Retention=_LOCKED)),
    _key("PutObjectLegalHold", "PutObjectLegalHold", lambda it: it.at_key("put_object_legal_hold", LegalHold=_HELD)),
    _bucket("HeadBucket", "head_bucket", action="ListBucket"),
    _bucket("GetBucketLocation", "get_bucket_location"),
    _bucket("GetBucketPolicy", "get_bucket_policy", "NoSuchBucketPolicy"),
    _bucket("PutBucketPolicy", "put_bucket_policy", Policy=_OPEN_POLICY),
    _bucket("DeleteBucketPolicy", "delete_bucket_policy"),
    _bucket("GetBucketAcl", "get_bucket_acl"),
    _bucket("PutBucketAcl", "put_bucket_acl", AccessControlPolicy=_GRANT),
    _bucket("GetBucketVersioning", "get_bucket_versioning"),
    _bucket("PutBucketVersioning", "put_bucket_versioning", VersioningConfiguration={"Status": "Suspended"}),
    _bucket(
        "GetBucketLifecycleConfiguration",
        "get_bucket_lifecycle_configuration",
        "NoSuchLifecycleConfiguration",
        action="GetLifecycleConfiguration",
    ),
    _bucket(
        "PutBucketLifecycleConfiguration",
        "put_bucket_lifecycle_configuration",
        action="PutLifecycleConfiguration",
        LifecycleConfiguration={"Rules": [_RULE]},
    ),
    _bucket(
        "GetBucketEncryption",
        "get_bucket_encryption",
        "ServerSideEncryptionConfigurationNotFoundError",
        action="GetEncryptionConfiguration",
    ),
    _bucket("DeleteBucketEncryption", "delete_bucket_encryption", action="PutEncryptionConfiguration"),
    _bucket("DeleteBucket", "delete_bucket", "BucketNotEmpty"),
    Call("ListBuckets", Kind.BUCKET, (Need("s3:ListAllMyBuckets", At.BUCKET),), lambda it: it.client.list_buckets()),
)
