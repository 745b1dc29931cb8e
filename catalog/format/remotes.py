"""The URL of a remote, taken apart. What lies behind it is for the kinds of stores."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from catalog.errors import InvalidRemote
from seglog.base.lazy import pattern

_CREDENTIALS = pattern(r"//[^/]*@")


def split_remote(url: str) -> SplitResult:
    """Return the parts of a URL. Raises `InvalidRemote` for one that `urlsplit` would read as another one.

    `urlsplit` drops tabs, line feeds and blanks around the URL, so the store would be another tenant's. It also
    drops an empty query. A prefix in S3 has no empty segment: `a//b` and `a/b` are two prefixes there.
    """
    safe_url = _CREDENTIALS.sub("//…@", url)  # an error is in logs, and the part before the @ may be a secret
    if any(char < " " or char == "\x7f" for char in url):
        raise InvalidRemote(safe_url, "it has a control character")
    if url != url.strip():
        raise InvalidRemote(safe_url, "it has a blank at its beginning or its end")
    try:
        url.encode()
    except UnicodeEncodeError as error:
        byte = ord(url[error.start]) & 0xFF
        raise InvalidRemote(safe_url, f"it is not UTF-8: write its byte {byte:#x} as %{byte:02X}") from None
    try:
        parts = urlsplit(url)
    except ValueError as cause:
        raise InvalidRemote(safe_url, str(cause)) from None
    if "@" in parts.netloc:
        raise InvalidRemote(safe_url, "credentials do not belong in it")
    if "?" in url or "#" in url:
        raise InvalidRemote(safe_url, "nothing may follow the path")
    if parts.scheme == "s3" and "//" in parts.path:
        raise InvalidRemote(safe_url, "the prefix has an empty or unsafe path segment")
    return parts
