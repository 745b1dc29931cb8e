"""A volume has one live name. A caller that gives it another name looks for others afterwards, and takes its own back.

    Anna: `branch undelete half`              Ben: `branch rename fix mended`, of the same volume
    1 puts the ref half                       1 puts the ref mended
    2 reads all refs of the topic             2 reads all refs of the topic except fix
      If another ref names the volume,          If another ref names the volume,
      she takes half back and is refused.       he takes mended back and is refused.
                                              3 takes fix away

NAME-1  Each caller puts its ref before it reads the others. So if two callers name one volume at the same time, at
    least one sees the other's ref. If both see the other's ref, both are refused, and the state is as before.
NAME-2  The names that the same operation takes away do not count. If another caller changes them, the operation fails.
NAME-3  A crash between steps 1 and 2, or 2 and 3, may leave two names. A rename or a delete of one of them ends that.
    Until then the volume gets no third name.
NAME-4  All names of a volume are names of one topic. So a look costs one LIST, and one GET for each branch of the
    topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from catalog.errors import VolumeHasName
from catalog.format.control import Ref
from catalog.format.gid import Vid
from catalog.format.keys import Key, branch_of, named_by, ref_key, refs_prefix, topic_of
from catalog.objects.base import ObjectStore
from catalog.refs.ref_store import Found

__all__ = ["check_only_name"]

Look = Callable[[Sequence[Key]], Sequence[Found[Ref]]]


def check_only_name(store: ObjectStore, look: Look, key: Key, vid: Vid, taken: Collection[Key] = ()) -> None:
    """Raise `VolumeHasName` if a name besides `key` and `taken` leads to `vid`."""
    topic = topic_of(key)
    named = [name for each in store.list(refs_prefix(topic)) if (name := named_by(each))]
    others = [ref_key(*name) for name in named if ref_key(*name) not in {key, *taken}]
    for other, found in zip(others, look(others), strict=True):
        if found.alive is not None and found.alive.vid == vid:
            raise VolumeHasName(topic, branch_of(key), branch_of(other))
