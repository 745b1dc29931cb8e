"""The store of a remote, as the processes of Spark open it: the planner, the driver and the executors.

Each process finds its own credentials, because no plan and no option has any. A job may outlive them.

An executor's Python process has one store and one reader for all of its tasks, because making an S3 client takes longer
than a small task. The process ends without closing the client.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from catalog.objects.object_store import ObjectStore
from offload.settings import encrypted_by
from offload.wiring import environment_source, open_store

if TYPE_CHECKING:
    from offload.read.cold_reader import ColdReader


def open_remote(url: str, kms_key_id: str = "") -> ObjectStore:
    """Return the store behind a remote. What it writes has the KMS key. Raises `InvalidRemote`."""
    return open_store(url, offload=encrypted_by(kms_key_id), credentials=environment_source(url))


@functools.cache
def store_of(url: str, kms_key_id: str = "") -> ObjectStore:
    return open_remote(url, kms_key_id)


@functools.cache
def reader_of(url: str) -> ColdReader:
    from offload.read.cold_reader import ColdReader  # imported late, because a scan needs none

    return ColdReader(store_of(url))
