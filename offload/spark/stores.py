"""The store of a remote, as the processes of Spark open it: the planner, the driver and the executors.

Each process finds its own credentials, because no plan and no option has any. A job may outlive them.
"""

from __future__ import annotations

from catalog.objects.base import ObjectStore
from offload.settings import encrypted_by
from offload.wiring import environment_source, open_store

__all__ = ["open_remote"]


def open_remote(url: str, kms_key_id: str = "") -> ObjectStore:
    """Return the store behind a remote. What it writes has the KMS key. Raises `InvalidRemote`."""
    return open_store(url, offload=encrypted_by(kms_key_id), credentials=environment_source(url))
