"""A volume has one live name. A caller that gives it another one looks for others after that, and takes its own back.

    Anna: `branch undelete half`        Ben: `branch rename fix mended`, of the same volume
    1 puts the ref half                 1 puts the ref mended
    2 looks at all refs of the topic    2 looks at all refs of the topic but fix
      another leads there: takes half     another leads there: takes mended back, and is refused
      back, and is refused              3 takes fix away

U1  Each puts its ref before it looks. So of two who give names to one volume at the same time, at least one sees the
    name of the other. If both see the other, both are refused, and the state is as before.
U2  The names that the same operation takes away do not count. A change of them by another makes the operation fail.
U3  A crash between steps 1 and 2 or between 2 and 3 may leave two names. A rename or a delete of one of them ends that.
    No third name is given until then.
U4  All names of a volume are names of one topic, so a look costs one LIST, and one GET for each branch of the topic.
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
    """Raise `VolumeHasName` if a name besides `key` and those of `taken` leads to `vid`."""
    topic = topic_of(key)
    named = [name for each in store.list(refs_prefix(topic)) if (name := named_by(each))]
    others = [ref_key(*name) for name in named if ref_key(*name) not in {key, *taken}]
    for other, found in zip(others, look(others), strict=True):
        if found.alive is not None and found.alive.vid == vid:
            raise VolumeHasName(topic, branch_of(key), branch_of(other))
