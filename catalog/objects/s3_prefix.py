"""Everything below a prefix of an S3 bucket: the port of `catalog.objects.prefix`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import boto3
from botocore.exceptions import BotoCoreError

from catalog.errors import InvalidRemote
from catalog.objects.prefix import Freed, Held, OldVersions, Upload
from catalog.objects.s3 import MOST_KEYS, S3Store
from catalog.objects.s3_client import new_session


def session_of_profile(url: str, profile: str) -> boto3.Session:
    """Return a session with the credentials of a profile. Raises `InvalidRemote`."""
    try:
        return new_session(profile=profile)
    except BotoCoreError as cause:
        raise InvalidRemote(url, f"the AWS environment does not fit: {cause}") from cause


class S3Prefix(S3Store):
    """A `WholePrefix`. All requests go through boto3."""

    def held(self, prefix: str = "") -> Iterator[Held]:
        return (Held(key, size) for key, size in self.sizes(prefix))

    def take(self, objects: Sequence[Held]) -> Freed:
        freed = Freed()
        for start in range(0, len(objects), MOST_KEYS):
            batch = objects[start : start + MOST_KEYS]
            # XML 1.0 cannot hold control characters, so such a key gets a request of its own.
            freed += self._take_batch([stored for stored in batch if stored.key.isprintable()])
            for stored in batch:
                if not stored.key.isprintable():
                    freed += self._take_one(stored)
        return freed

    def _take_batch(self, batch: Sequence[Held]) -> Freed:
        if not batch:
            return Freed()
        keys = [{"Key": self._base + stored.key} for stored in batch]
        with self._errors(batch[0].key):
            answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": keys})
        for error in answer.get("Errors", ()):
            code, key = error.get("Code", ""), error.get("Key", "").removeprefix(self._base)
            raise self._error_of(key, code, 0, f"{code}: {error.get('Message', '')} (deleting {key})")
        marked = {done["Key"].removeprefix(self._base) for done in answer["Deleted"] if done.get("DeleteMarker")}
        unreferenced = sum(stored.size for stored in batch if stored.key in marked)
        return Freed(sum(stored.size for stored in batch) - unreferenced, unreferenced)

    def _take_one(self, stored: Held) -> Freed:
        with self._errors(stored.key):
            answer = self._client.delete_object(Bucket=self._bucket, Key=self._base + stored.key)
        return Freed(0, stored.size) if answer.get("DeleteMarker") else Freed(stored.size, 0)

    def old_versions(self) -> OldVersions:
        versions = markers = size = 0
        pages = self._client.get_paginator("list_object_versions")
        with self._errors(self._base):
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._base):
                in_page = page.get("Versions", ())
                versions += len(in_page)
                size += sum(version["Size"] for version in in_page)
                markers += len(page.get("DeleteMarkers", ()))
        return OldVersions(versions, markers, size)

    def uploads(self) -> Iterator[Upload]:
        for key, upload_id in self.list_uploads(""):
            yield Upload(key, upload_id)

    def abort(self, upload: Upload) -> None:
        with self._errors(upload.key):
            try:
                self._client.abort_multipart_upload(
                    Bucket=self._bucket, Key=self._base + upload.key, UploadId=upload.upload_id
                )
            except self._client.exceptions.NoSuchUpload:
                return

    def clear(self) -> None:
        """Do nothing: a prefix without objects is nothing."""
