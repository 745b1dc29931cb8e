"""The remotes of an executor's Python process: one store and one reader for all of its tasks.

Making an S3 client takes longer than a small task. The process ends without closing the client.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from catalog.objects.base import ObjectStore
from offload.spark.stores import open_remote

if TYPE_CHECKING:
    from offload.read.cold_reader import ColdReader

__all__ = ["reader_of", "store_of"]


@functools.cache
def store_of(url: str, kms_key_id: str = "") -> ObjectStore:
    return open_remote(url, kms_key_id)


@functools.cache
def reader_of(url: str) -> ColdReader:
    from offload.read.cold_reader import ColdReader  # imported late, because a scan needs none

    return ColdReader(store_of(url))
