"""Object stores: one port (`ObjectStore`), three implementations."""

from catalog.objects.base import ObjectInfo, ObjectStore, PartTag
from catalog.objects.local import LocalStore
from catalog.objects.memory import MemoryStore
from catalog.objects.s3 import S3Store

__all__ = ["LocalStore", "MemoryStore", "ObjectInfo", "ObjectStore", "PartTag", "S3Store"]
