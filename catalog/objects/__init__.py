"""Object stores: one port (`ObjectStore`) and three implementations.

This package does not import `catalog.objects.s3`. That module imports boto3, which takes longer than all other imports.
"""

from catalog.objects.local import LocalStore
from catalog.objects.memory import MemoryStore
from catalog.objects.object_store import ObjectInfo, ObjectStore, PartTag, WithETag

__all__ = ["LocalStore", "MemoryStore", "ObjectInfo", "ObjectStore", "PartTag", "WithETag"]
