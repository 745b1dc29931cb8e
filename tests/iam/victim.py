"""The keys of the other tenant in the bucket: objects, an old version, a delete marker, an open upload."""

from __future__ import annotations

from dataclasses import dataclass

from tests.iam.site import Site

__all__ = ["BODY", "Victim", "make_victim", "state_of"]

BODY = b"a secret of the other tenant"


@dataclass(frozen=True, slots=True)
class Victim:
    """A tenant's prefix, and what an attacker might have learnt of it."""

    prefix: str
    key: str
    version_id: str
    deleted_key: str
    marker_id: str
    upload_key: str
    upload_id: str
    part_etag: str


def make_victim(site: Site, prefix: str) -> Victim:
    """Write the victim's objects as the owner of the bucket."""
    owner, bucket = site.client(), site.bucket
    key, deleted, uploaded = (f"{prefix}{name}" for name in ("kept", "deleted", "uploaded"))
    version = owner.put_object(Bucket=bucket, Key=key, Body=BODY)["VersionId"]
    owner.put_object(Bucket=bucket, Key=key, Body=BODY)
    owner.put_object(Bucket=bucket, Key=deleted, Body=BODY)
    marker = owner.delete_object(Bucket=bucket, Key=deleted)["VersionId"]
    upload = owner.create_multipart_upload(Bucket=bucket, Key=uploaded)["UploadId"]
    part = owner.upload_part(Bucket=bucket, Key=uploaded, UploadId=upload, PartNumber=1, Body=BODY)
    return Victim(prefix, key, version, deleted, marker, uploaded, upload, part["ETag"])


def state_of(site: Site, victim: Victim) -> object:
    """Return each version and marker under the victim's prefix, and the parts of its upload."""
    owner, bucket = site.client(), site.bucket
    listed = owner.list_object_versions(Bucket=bucket, Prefix=victim.prefix)
    versions = [(each["Key"], each["VersionId"], each["ETag"], each["IsLatest"]) for each in listed["Versions"]]
    markers = [(each["Key"], each["VersionId"], each["IsLatest"]) for each in listed["DeleteMarkers"]]
    parts = owner.list_parts(Bucket=bucket, Key=victim.upload_key, UploadId=victim.upload_id)["Parts"]
    return versions, markers, [(part["PartNumber"], part["ETag"]) for part in parts]
