"""How `catalog.objects.s3` has its boto3 clients: timeouts, connections, addressing, and what the SDK left out."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

__all__ = ["is_aws", "open_client"]

MAX_CONNECTIONS = 32


def open_client(
    session: boto3.Session, retries: Mapping[str, object], checksums: str, timeouts: Mapping[str, float]
) -> Any:
    """`checksums` is when the SDK computes one of its own: `when_supported` or `when_required`."""
    config = Config(
        request_checksum_calculation=checksums,
        retries=retries,
        max_pool_connections=MAX_CONNECTIONS,
        tcp_keepalive=True,
        **timeouts,
    )
    client = session.client("s3", config=config)
    if not is_aws(client.meta.endpoint_url):
        # A store of one's own rarely has a DNS name for each bucket.
        client.close()
        client = session.client("s3", config=config.merge(Config(s3={"addressing_style": "path"})))
    client.meta.events.register("before-call.s3.DeleteObjects", _add_md5)
    return client


def is_aws(endpoint_url: str) -> bool:
    host = urlsplit(endpoint_url).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _add_md5(params: dict[str, Any], **_: object) -> None:
    """Older stores want it where the SDK, since 1.36, sends a CRC32 in its place."""
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()
