"""Object stores: one port (`ObjectStore`), three implementations.

`catalog.objects.s3` is not imported here: it brings boto3, which takes longer to import than all the rest.
"""

from catalog.objects.base import ObjectInfo, ObjectStore, PartTag, Tagged
from catalog.objects.local import LocalStore
from catalog.objects.memory import MemoryStore

__all__ = ["LocalStore", "MemoryStore", "ObjectInfo", "ObjectStore", "PartTag", "Tagged"]
