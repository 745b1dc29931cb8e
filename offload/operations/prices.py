"""Prices of an object store, as a TOML file or the default.

    name = "S3 Standard, us-east-1"     optional: a text for the output
    as_of = 2025-06-01                  optional: the day of the prices
    currency = "USD"
    storage_gb_month = 0.023            for a month of 2^30 stored bytes
    put_per_1000 = 0.005                for 1,000 requests that write or list
    get_per_1000 = 0.0004               for 1,000 requests that read

PRICE-1  All amounts are zero or more. A file with an unknown key, or without one that is not optional, is refused.
PRICE-2  Deletes and aborts are free, as on S3. Prices by volume, transfer and minimum times of storage are left out.
"""

from __future__ import annotations

import datetime as dt
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offload.errors import InvalidParameters

__all__ = ["S3_STANDARD", "Prices", "parse_prices"]

_GB = 1 << 30
_MONTH_S = 30 * 86_400
_AMOUNTS = ("storage_gb_month", "put_per_1000", "get_per_1000")
_TEXTS = ("name", "as_of", "currency")
_WRITES = frozenset(
    {"complete_upload", "create_upload", "list", "list_uploads", "put", "put_new", "put_part", "swap", "time_ms"}
)
_READS = frozenset({"get", "get_range", "get_with_etag", "head"})


@dataclass(frozen=True, slots=True)
class Prices:
    name: str
    as_of: str
    currency: str
    storage_gb_month: float
    put_per_1000: float
    get_per_1000: float

    def storage(self, size_bytes: int) -> float:
        """Return the price of a month of `size_bytes`."""
        return size_bytes / _GB * self.storage_gb_month

    def requests(self, methods: Mapping[str, int], covers_s: float) -> float:
        """Return the price of a month of requests, at the rate of the last `covers_s` seconds."""
        writes = sum(count for method, count in methods.items() if method in _WRITES)
        reads = sum(count for method, count in methods.items() if method in _READS)
        if covers_s <= 0:
            return 0.0
        return (writes * self.put_per_1000 + reads * self.get_per_1000) / 1000 * _MONTH_S / covers_s


S3_STANDARD = Prices("S3 Standard, us-east-1, first 50 TB", "2025-06-01", "USD", 0.023, 0.005, 0.0004)


def parse_prices(text: str) -> Prices:
    """Return the prices of a file. Raises `InvalidParameters`."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidParameters(f"the file of prices is not TOML: {error}") from None
    for key in found:
        if key not in (*_TEXTS, *_AMOUNTS):
            raise InvalidParameters(
                f"the file of prices has an unknown key {key!r}; the keys are {', '.join(_known())}"
            )
    amounts = [_amount(found, key) for key in _AMOUNTS]
    return Prices(_text(found, "name", ""), _day(found), _text(found, "currency", None), *amounts)


def _known() -> list[str]:
    return sorted((*_TEXTS, *_AMOUNTS))


def _amount(found: Mapping[str, Any], key: str) -> float:
    value: Any = found.get(key)
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise InvalidParameters(f"the file of prices needs {key}, a number of 0 or more; it has {value!r}")
    return float(value)


def _text(found: Mapping[str, Any], key: str, default: str | None) -> str:
    value = found.get(key, default)
    if not isinstance(value, str) or len(value) > 100:
        raise InvalidParameters(f"the file of prices needs {key}, a text of at most 100 characters; it has {value!r}")
    return value


def _day(found: Mapping[str, Any]) -> str:
    value = found.get("as_of", "")
    return value.isoformat() if isinstance(value, dt.date) else _text(found, "as_of", "")
