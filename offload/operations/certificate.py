"""The end of validity of a certificate in PEM, read from its DER encoding (X.690, RFC 5280).

    Certificate ::= SEQUENCE { tbsCertificate SEQUENCE {
        [0] version (optional), serialNumber, signature, issuer, validity SEQUENCE { notBefore, notAfter }, ... }, ... }

The module checks no signature: it reads a date. A file may have several certificates; the first one counts.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

__all__ = ["valid_until_ms"]

_SEQUENCE, _UTC_TIME, _GENERAL_TIME, _VERSION = 0x30, 0x17, 0x18, 0xA0
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def valid_until_ms(pem: str) -> int:
    """Return the time in ms at which the certificate ends. Raises `ValueError` for any other text."""
    begin, end = pem.find(_BEGIN), pem.find(_END)
    if not 0 <= begin < end:
        raise ValueError("there is no certificate in PEM")
    _, certificate, _ = _item(ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_END)]))
    tag, rest, _ = _item(certificate)
    if tag != _SEQUENCE:
        raise ValueError("it has no contents")
    if rest[:1] == bytes([_VERSION]):
        _, _, rest = _item(rest)
    for _ in ("serialNumber", "signature", "issuer"):
        _, _, rest = _item(rest)
    _, validity, _ = _item(rest)
    _, _, after = _item(validity)
    tag, text, _ = _item(after)
    if tag not in (_UTC_TIME, _GENERAL_TIME):
        raise ValueError("it has no date")
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return int(datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp()) * 1000


def _item(body: bytes) -> tuple[int, bytes, bytes]:
    """Return the tag and the contents of the first item, and the bytes behind it. Raises `ValueError`."""
    if len(body) < 2:
        raise ValueError("it ends too early")
    length, start = body[1], 2
    if length & 0x80:
        start = 2 + (length & 0x7F)
        length = int.from_bytes(body[2:start], "big")
    if len(body) < start + length:
        raise ValueError("it ends too early")
    return body[0], body[start : start + length], body[start + length :]
