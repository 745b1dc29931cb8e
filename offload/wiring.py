"""The implementation behind a remote URL, its place and its credentials. Only this module names the implementations."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from catalog.errors import AccessDenied, InvalidRemote
from catalog.format.remotes import split_remote
from catalog.objects.object_store import ObjectStore
from offload.settings import DEFAULT, ColdSettings, OffloadSettings, Settings
from seglog.base.lazy import pattern
from seglog.errors import InvalidArgument

if TYPE_CHECKING:
    from catalog.objects.prefix import WholePrefix
    from catalog.objects.s3_credentials import CredentialSource, FoundCredentials

__all__ = [
    "check_remote_apart",
    "credential_finder",
    "environment_source",
    "open_prefix",
    "open_store",
    "path_of",
    "variables_without_credentials",
]

_UNSAFE = "the prefix has an empty or unsafe path segment"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HTTP = pattern(
    rf"https?://({_LABEL}(\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{{0,4}})?(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*/?"
)
_SEGMENT = pattern(r"[A-Za-z0-9!_.*'()-]+")


def open_store(
    url: str,
    settings: ColdSettings | None = None,
    offload: OffloadSettings | None = None,
    credentials: CredentialSource | None = None,
) -> ObjectStore:
    """Return the store behind `s3://bucket/prefix`, `file:///path` or `https://host:7373`. Opens no connection yet.

    `settings` are for its reads, and `offload` for its writes. A store over HTTP only reads, through a proxy. The
    variable SEGLOG_TOKEN_FILE names the file with its token, which each request reads again. A token goes to another
    machine over TLS only.

    S3's endpoint, region and credentials come from the standard AWS environment and configuration. If the caller gives
    `credentials`, the store asks that source instead, and never the environment. A `file:` store needs none.
    Raises `InvalidRemote`.
    """
    parts = split_remote(url)
    if parts.scheme == "file":
        return _local(url, parts.netloc, path_of(parts.path))
    if parts.scheme == "s3":
        prefix = parts.path.strip("/")
        return _s3(url, parts.netloc, prefix, settings or ColdSettings(), offload or OffloadSettings(), credentials)
    if parts.scheme in {"http", "https"}:
        return _http(url, settings or ColdSettings())
    raise InvalidRemote(url, "the scheme is none of s3, file, https and http")


def open_prefix(url: str, profile: str | None = None, credentials: CredentialSource | None = None) -> WholePrefix:
    """Return everything below a remote that has a prefix, for its deletion. Opens no connection yet.

    The credentials are those of an AWS profile, of a source, or of the environment. Raises `InvalidRemote`.
    """
    store = open_store(url)  # checks the URL
    store.close()
    parts = split_remote(url)
    if parts.scheme == "file":
        from catalog.objects.prefix import LocalPrefix

        return LocalPrefix(path_of(parts.path))
    from catalog.objects.s3_prefix import S3Prefix, session_of_profile

    if parts.scheme != "s3":
        raise InvalidRemote(url, "it only reads: name the bucket itself")
    if not parts.path.strip("/"):
        raise InvalidRemote(url, "the prefix is missing")
    session = session_of_profile(url, profile) if profile else None
    return S3Prefix(url.rstrip("/"), session, credentials=None if profile else credentials, reader="boto3")


def credential_finder() -> Callable[[], FoundCredentials]:
    """Return a function that finds the AWS credentials of this process, as the stores do."""
    from catalog.objects.s3_credentials import CredentialFinder

    return CredentialFinder().find


def environment_source(url: str) -> CredentialSource | None:
    """Return the AWS credentials of this process as a source, for a store that outlives them. A `file:` store has none.

    Such a store asks for newer credentials when it needs some, also if S3 refuses the old ones.
    """
    if not url.startswith("s3:"):
        return None
    from catalog.objects.s3_credentials import EnvironmentCredentials

    return EnvironmentCredentials()


def variables_without_credentials(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that opens the same stores and gets its credentials in another way.

    It names the same endpoint and region. It has no credentials of AWS, and no file or service that gives some.
    """
    from catalog.objects.s3_client import place_variables

    plain = {name: text for name, text in variables.items() if not name.startswith("AWS_")}
    return plain | place_variables(variables)


def check_remote_apart(url: str, directory: Path) -> None:
    """Raise `InvalidRemote` if a remote in a directory and the data directory `directory` are not apart.

    A remote within the data directory is lost together with it. If the data directory lies within the remote, the store
    lists its files as objects. The check compares device and inode, so it sees through links and bind mounts.
    """
    parts = split_remote(url)
    if parts.scheme != "file":
        return
    remote = path_of(parts.path)
    if _is_in(remote, directory):
        raise InvalidRemote(url, f"it lies in the data directory {directory}, and would be lost together with it")
    if _is_in(directory, remote):
        raise InvalidRemote(url, f"the data directory {directory} lies in it: take a directory beside that")


def path_of(quoted: str) -> Path:
    """Return the path that a URL quotes. `%FF` is that byte, though no UTF-8 has it."""
    return Path(os.fsdecode(unquote_to_bytes(quoted)))


def _local(url: str, host: str, path: Path) -> ObjectStore:
    from catalog.objects.local import LocalStore

    if host or not path.is_absolute() or path == Path("/"):
        raise InvalidRemote(url, "a file remote has three slashes and an absolute path")
    return LocalStore(path)


def _s3(
    url: str,
    bucket: str,
    prefix: str,
    settings: ColdSettings,
    offload: OffloadSettings,
    credentials: CredentialSource | None,
) -> ObjectStore:
    from catalog.objects.s3 import (  # only if it is used: boto3 takes a quarter of a second to import
        ReadSettings,
        S3Store,
        WriteSettings,
    )

    if not bucket:
        raise InvalidRemote(url, "the bucket is missing")
    if prefix and not all(_SEGMENT.fullmatch(part) and part not in {".", ".."} for part in prefix.split("/")):
        raise InvalidRemote(url, _UNSAFE)
    reads = ReadSettings(timeout_s=settings.get_timeout_s, attempts=settings.get_attempts)
    storage_class = "" if offload.storage_class == DEFAULT else offload.storage_class
    writes = WriteSettings(offload.checksum, storage_class, offload.sse, offload.sse_kms_key_id)
    store_url = f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
    return S3Store(store_url, credentials=credentials, reads=reads, writes=writes, limit_s=settings.store_timeout_s)


def _http(url: str, settings: ColdSettings) -> ObjectStore:
    from catalog.objects.http import HttpStore
    from seglog.client.address import address_of

    try:
        host = address_of(url).host if _HTTP.fullmatch(url) else ""
    except InvalidArgument:
        host = ""
    if not host:
        raise InvalidRemote(url, "it has to be as https://host:7373, or as https://host:7373/tenants/NAME")
    token_file = os.environ.get("SEGLOG_TOKEN_FILE")
    if token_file is not None and url.startswith("http:") and not _is_loopback(host):
        raise InvalidRemote(url, "others could read the token of SEGLOG_TOKEN_FILE on its way: use https")
    return HttpStore(
        url,
        (lambda: None) if token_file is None else lambda: _token_in(token_file, url),
        timeout_s=settings.get_timeout_s,
        attempts=settings.get_attempts,
        limit_s=settings.store_timeout_s,
    )


def _is_loopback(host: str) -> bool:
    import ipaddress  # only a remote over HTTP needs it

    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token_in(file: str, url: str) -> str:
    from seglog.client.address import token_in

    hint = "SEGLOG_TOKEN_FILE names its file, which has the token on one line"
    try:
        return token_in(Path(file))
    except (OSError, InvalidArgument) as error:
        raise AccessDenied(url, f"its token is not readable: {error}", hint) from error


def _is_in(path: Path, other: Path) -> bool:
    """Return whether `path` lies in `other`, or is the same. Neither needs to exist."""
    path, other = Path(os.path.realpath(path)), Path(os.path.realpath(other))
    for ancestor in (path, *path.parents):
        if ancestor == other:
            return True
        with suppress(OSError):
            if ancestor.samefile(other):
                return True
    return False


def source_of(settings: Settings, url: str | None) -> CredentialSource | None:
    """Return the credentials of the directory's tenant for the remote `url`; None for those of the AWS environment.

    Imports boto3 only if the directory needs it. Makes no request. Raises the errors of
    `offload.tenants.sts_request.access_of`.
    """
    if not settings.tenant.role_arn:
        return None
    from offload.tenants.credentials import SingleTenant
    from offload.tenants.sts_request import access_of

    access = access_of(settings, url)
    return None if access is None else SingleTenant(access)
