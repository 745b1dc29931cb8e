"""Strong validators of sealed ranges, and the condition that a client sends with one (RFC 9110, sections 8.8 and 13.1).

    part of an ETag                       changes with
    incarnation of the topic              a deletion of the topic, another directory
    version of the sealed records         each truncation, delete, eviction (Topic.sealed_version)
    the query                             the range, the filters, the limits
    the media type                        the representation
    the version of seglog                 the encoding

ETAG-1  Of two answers with the same ETag, both have the same bytes, unless records were deleted while one of them was
    sent. In that case, the topic has the ETag never again. So no 304 confirms an outdated answer.
No I/O.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import version

__all__ = ["etag_of", "is_match"]

_DIGEST_BYTES = 16


def etag_of(incarnation: str, sealed_version: Sequence[int], query: Sequence[tuple[str, str]], media_type: str) -> str:
    """Return a strong ETag, with its quotes. The order of the query is of no meaning."""
    parts = [version("seglog"), incarnation, list(sealed_version), sorted(query), media_type]
    return f'"{hashlib.blake2b(json.dumps(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest()}"'


def is_match(condition: str | None, etag: str) -> bool:
    """Return whether the value of `If-None-Match` has the ETag, by the weak comparison."""
    if condition is None:
        return False
    given = [each.strip().removeprefix("W/") for each in condition.split(",")]
    return etag in given or given == ["*"]
