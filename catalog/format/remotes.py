"""The URL of a remote, taken apart. What lies behind it is for the kinds of stores."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from catalog.errors import InvalidRemote

__all__ = ["split_remote"]

_CREDENTIALS = re.compile(r"//[^/]*@")


def split_remote(url: str) -> SplitResult:
    """Return the parts of a URL. Raises `InvalidRemote` for one that `urlsplit` would read as another one.

    `urlsplit` drops tabs, line feeds and blanks around the URL, so the store would be another tenant's. It also
    drops an empty query. A prefix in S3 has no empty segment: `a//b` and `a/b` are two prefixes there.
    """
    shown = _CREDENTIALS.sub("//…@", url)  # an error is in logs, and the part before the @ may be a secret
    if any(char < " " or char == "\x7f" for char in url):
        raise InvalidRemote(shown, "it has a control character")
    if url != url.strip():
        raise InvalidRemote(shown, "it has a blank at its beginning or its end")
    try:
        url.encode()
    except UnicodeEncodeError as error:
        byte = ord(url[error.start]) & 0xFF
        raise InvalidRemote(shown, f"it is not UTF-8: write its byte {byte:#x} as %{byte:02X}") from None
    try:
        parts = urlsplit(url)
    except ValueError as cause:
        raise InvalidRemote(shown, str(cause)) from None
    if "@" in parts.netloc:
        raise InvalidRemote(shown, "credentials do not belong in it")
    if "?" in url or "#" in url:
        raise InvalidRemote(shown, "nothing may follow the path")
    if parts.scheme == "s3" and "//" in parts.path:
        raise InvalidRemote(shown, "the prefix has an empty or unsafe path segment")
    return parts
