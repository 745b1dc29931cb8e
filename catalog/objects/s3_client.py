"""The boto3 sessions and clients of `catalog.objects.s3`: timeouts, connections, addressing, headers, signatures.

SIGN-1  If a body has its CRC32C in a header, the signature of `put` and `put_part` covers that header and not the body.
    So the SDK computes no SHA-256 of a body that the store compares with the CRC32C. With `payload_signing_enabled` in
    the AWS configuration, the user decides instead.
SIGN-2  The signature of `put_new` and `swap` covers the body. So the body of a commit is signed. The commit has the
    BLAKE3 of each object that it names.
"""

from __future__ import annotations

import base64
import copy
import functools
import hashlib
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.loaders import Loader, create_loader
from botocore.session import Session

MAX_CONNECTIONS = 32

_CHECKSUM = "x-amz-checksum-crc32c"
_PLACE_VARIABLES = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_REGION",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_USE_FIPS_ENDPOINT",
)
_NO_CREDENTIALS = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
_OBJECT_WRITES = ("PutObject", "UploadPart")


def new_session(credentials: Credentials | None = None, profile: str | None = None) -> boto3.Session:
    """A session with the settings of the environment, and its credentials unless the caller gives some.

    `profile` names another profile of the AWS configuration than the environment does.

    All sessions share the parsed descriptions of the AWS services. Parsing them takes most of the time of a client.
    """
    core = Session(profile=profile)
    loader = _loader(core.get_config_variable("data_path"))
    core.register_component("data_loader", loader)
    if credentials is not None:
        core.register_component("credential_provider", _Given(credentials))
    session = boto3.Session(botocore_session=core)
    # Each boto3 session adds its own folder to the list.
    loader.search_paths[:] = dict.fromkeys(loader.search_paths)
    return session


class _Given:
    """Takes the place of botocore's search for credentials. So no client asks the environment for them."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def load_credentials(self) -> Credentials:
        return self._credentials


@functools.cache
def _loader(data_path: str | None) -> Loader:
    return create_loader(data_path)


def place_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return AWS variables that lead another process to the same endpoint and region, and to no credentials.

    `variables` is the environment of this process. A profile of the AWS configuration may give the values instead.
    """
    core = Session()
    scoped = core.get_scoped_config()
    values = {
        "AWS_CA_BUNDLE": core.get_config_variable("ca_bundle"),
        "AWS_DEFAULT_REGION": core.get_config_variable("region"),
        "AWS_ENDPOINT_URL": scoped.get("endpoint_url"),
    } | {name: variables[name] for name in _PLACE_VARIABLES if name in variables}
    return {name: text for name, text in values.items() if text} | _NO_CREDENTIALS


def open_client(
    session: boto3.Session, retries: Mapping[str, object], checksums: str, timeouts: Mapping[str, float]
) -> Any:
    """Return an S3 client.

    `checksums` says when the SDK adds a checksum of its own: `when_supported` or `when_required`.
    """
    config = Config(
        request_checksum_calculation=checksums,
        retries=retries,
        max_pool_connections=MAX_CONNECTIONS,
        tcp_keepalive=True,
        **timeouts,
    )
    client = session.client("s3", config=config)
    if not is_aws(client.meta.endpoint_url):
        client.meta.events.register("before-endpoint-resolution.s3", _name_the_bucket_in_the_path)
    client.meta.events.register("before-call.s3.DeleteObjects", _add_md5)
    client.meta.events.register_first("needs-retry.s3.HeadObject", _ask_no_bucket)
    return client


def leave_bodies_unsigned(client: Any) -> None:
    """Sign the checksum of a body instead of the body (SIGN-1)."""
    config = client.meta.config
    if "payload_signing_enabled" in (config.s3 or {}):
        return
    unsigned = copy.copy(config)
    unsigned.s3 = {**(config.s3 or {}), "payload_signing_enabled": False}

    def choose(params: dict[str, Any], **_: object) -> None:
        if _CHECKSUM in params["headers"]:
            params["context"]["client_config"] = unsigned

    for operation in _OBJECT_WRITES:
        client.meta.events.register(f"before-call.s3.{operation}", choose)


def is_aws(endpoint_url: str) -> bool:
    host = urlsplit(endpoint_url).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _name_the_bucket_in_the_path(builtins: dict[str, Any], **_: object) -> None:
    """Use path style, because a self-hosted store rarely has a DNS name for each bucket."""
    builtins["AWS::S3::ForcePathStyle"] = True


def _ask_no_bucket(request_dict: dict[str, Any], response: Any, **_: object) -> None:
    """Keep botocore from a HeadBucket, by which it looks for the region after a HEAD that fails (BUCKET-6)."""
    if response is not None and "x-amz-bucket-region" not in response[0].headers:
        request_dict["context"].setdefault("s3_redirect", {})["redirected"] = True


def _add_md5(params: dict[str, Any], **_: object) -> None:
    """Add Content-MD5. Older stores require it, and the SDK since 1.36 sends a CRC32 in its place."""
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()
