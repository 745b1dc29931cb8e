"""The parameters that `catalog.objects.s3` sends with a write: checksum, storage class, encryption.

    setting     sent with
    checksum    put, put_part and complete_upload; `put_new` and `swap` have the SDK's own CRC32
    storage     put, create_upload: large objects. Commits and names stay in the store's own class
    encryption  put, put_new, swap, create_upload; a part follows its upload

BPUT-1  A checksum of the whole object counts as kept only if the store's answer says so. With `auto`, a store that does
    not keep it, or refuses the request, gets the request again with CRC32. Every store knows CRC32: of the whole for
    one PUT, of each part for an upload. The result holds for the life of the store object.
BPUT-2  If the settings name a kind that the store does not keep, that is an error. Users must not trust a check that
    does not happen.
KMS-1  With a key in the settings, every request that makes an object carries it: `put`, `put_new`, `swap`,
    `create_upload`. So no object gets the account's own key, whatever the bucket's default is.

Source: the S3 API reference, "Checking object integrity".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from botocore.exceptions import ClientError

from catalog.errors import ChecksumNotKept
from catalog.format.checksum import Checksum, ChecksumKind, SizedChecksum
from seglog.base.dataclasses import dataclass

_REFUSALS = frozenset({"InvalidArgument", "InvalidRequest", "NotImplemented", "XNotImplemented", "MalformedXML"})


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Settings of writes. `checksum` is the name of a kind, `auto` or `none`.

    An empty `storage_class`, or `sse` `none`, leaves the choice to the bucket.
    """

    checksum: str = "auto"
    storage_class: str = ""
    sse: str = "none"
    sse_kms_key_id: str = ""

    def encryption(self) -> dict[str, str]:
        if self.sse == "none":
            return {}
        key = {"SSEKMSKeyId": self.sse_kms_key_id} if self.sse_kms_key_id else {}
        return {"ServerSideEncryption": self.sse, **key}

    def placement(self) -> dict[str, str]:
        """Return the parameters of objects that `put` and `create_upload` make."""
        return self.encryption() | ({"StorageClass": self.storage_class} if self.storage_class else {})


@dataclass(frozen=True, slots=True)
class Scheme:
    """The checksum that goes with a write. If `is_whole`, the checksum of an upload covers the whole object too."""

    kind: ChecksumKind | None
    is_whole: bool = True

    @property
    def kinds(self) -> tuple[ChecksumKind, ...]:
        return () if self.kind is None else (self.kind,)

    def of_upload(self) -> dict[str, str]:
        if self.kind is None:
            return {}
        fields = {"ChecksumAlgorithm": self.kind.upper()}
        return fields | {"ChecksumType": "FULL_OBJECT"} if self.is_whole else fields


class Schemes:
    """The schemes that a store keeps, found by trying (BPUT-1). The one for puts and the one for uploads may differ."""

    def __init__(self, url: str, checksum: str) -> None:
        self._url = url
        self._checksum = checksum
        self._lock = threading.Lock()
        self._in_use: dict[str, Scheme] = {}

    def in_use(self, use: Literal["put", "upload"]) -> Scheme:
        """Return the scheme in use. Before anything is known, return the scheme that is tried first."""
        return self._in_use.get(use) or self._candidates()[0]

    def send(
        self,
        use: Literal["put", "upload"],
        request: Callable[[Scheme], Mapping[str, Any]],
        is_kept: Callable[[Scheme, Mapping[str, Any]], bool],
        undo: Callable[[Mapping[str, Any]], object] = lambda _: None,
    ) -> Mapping[str, Any]:
        """Send the request and return its answer.

        Call `undo` with an answer that does not say that the checksum is kept.
        """
        scheme = self._in_use.get(use)
        if scheme is None:
            with self._lock:
                scheme = self._in_use.get(use)
                if scheme is None:
                    return self._find(use, request, is_kept, undo)
        return request(scheme)

    def _find(
        self,
        use: str,
        request: Callable[[Scheme], Mapping[str, Any]],
        is_kept: Callable[[Scheme, Mapping[str, Any]], bool],
        undo: Callable[[Mapping[str, Any]], object],
    ) -> Mapping[str, Any]:
        *first, last = self._candidates()
        for scheme in first:
            try:
                answer = request(scheme)
            except ClientError as refusal:
                if refusal.response["Error"].get("Code") not in _REFUSALS:
                    raise
                continue
            if is_kept(scheme, answer):
                self._in_use[use] = scheme
                return answer
            undo(answer)
        answer = request(last)
        if self._checksum not in {"auto", "none"} and not is_kept(last, answer):
            undo(answer)
            raise ChecksumNotKept(self._url, self._checksum)
        self._in_use[use] = last
        return answer

    def _candidates(self) -> tuple[Scheme, ...]:
        if self._checksum == "auto":
            return Scheme(ChecksumKind.CRC32C), Scheme(ChecksumKind.CRC32, is_whole=False)
        return (Scheme(None if self._checksum == "none" else ChecksumKind(self._checksum)),)


def field_of(kind: ChecksumKind) -> str:
    """Return the API's name for a checksum of this kind."""
    return f"Checksum{kind.upper()}"


def request_of(checksum: Checksum | None) -> dict[str, str]:
    # Send the SDK's name for the algorithm too: some stores look there first.
    if checksum is None:
        return {}
    return {"ChecksumAlgorithm": checksum.kind.upper(), field_of(checksum.kind): str(checksum)}


def completion_of(sized: SizedChecksum) -> dict[str, Any]:
    checksum = sized.checksum
    return {"ChecksumType": "FULL_OBJECT", field_of(checksum.kind): str(checksum), "MpuObjectSize": sized.size}


def checksum_in(answer: Mapping[str, Any], kinds: Sequence[ChecksumKind] = tuple(ChecksumKind)) -> Checksum | None:
    """Return the checksum of the whole object that an answer gives; None if it gives none."""
    if answer.get("ChecksumType") == "COMPOSITE":
        return None
    for kind in kinds:
        text = answer.get(field_of(kind))
        if text is not None and "-" not in text:
            return Checksum.parse(kind, text)
    return None
