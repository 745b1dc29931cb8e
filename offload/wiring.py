"""Which implementation stands behind a remote URL. The one place that names them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from catalog.objects.base import ObjectStore
from offload.cold_settings import ColdSettings
from offload.errors import InvalidRemote

__all__ = ["open_store"]

_SEGMENT = re.compile(r"[A-Za-z0-9!_.*'()-]+")


def open_store(url: str, settings: ColdSettings | None = None) -> ObjectStore:
    """The store behind `s3://bucket/prefix` or `file:///path`. Opens nothing yet. `settings` are those of its reads.

    S3's endpoint, region and credentials come from the standard AWS environment and configuration.
    Raises `InvalidRemote`.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        # The URL is in logs and errors: what stands before the @ may be a secret.
        raise InvalidRemote(f"{parts.scheme}://…@{parts.netloc.rpartition('@')[2]}", "credentials do not belong in it")
    if parts.query or parts.fragment:
        raise InvalidRemote(url, "nothing may follow the path")
    if parts.scheme == "file":
        return _local(url, parts.netloc, unquote(parts.path))
    if parts.scheme == "s3":
        return _s3(url, parts.netloc, parts.path.strip("/"), settings or ColdSettings())
    raise InvalidRemote(url, "the scheme is neither s3 nor file")


def _local(url: str, host: str, path: str) -> ObjectStore:
    from catalog.objects.local import LocalStore

    if host or not path.startswith("/") or path == "/":
        raise InvalidRemote(url, "a file remote has three slashes and an absolute path")
    return LocalStore(Path(path))


def _s3(url: str, bucket: str, prefix: str, settings: ColdSettings) -> ObjectStore:
    from catalog.objects.s3 import (  # boto3 takes a quarter of a second to import: only when it is used
        ReadSettings,
        S3Store,
    )

    if not bucket:
        raise InvalidRemote(url, "the bucket is missing")
    if prefix and not all(_SEGMENT.fullmatch(part) and part not in {".", ".."} for part in prefix.split("/")):
        raise InvalidRemote(url, "the prefix has an empty or unsafe path segment")
    reads = ReadSettings(timeout_s=settings.get_timeout_s, attempts=settings.get_attempts)
    return S3Store(f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}", reads=reads)
