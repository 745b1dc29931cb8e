"""Races that showed a fault once show none, and each mutant is found.

A mutant takes the mend of a fault back, or is a mistake that the simulation finds, too. The race of its seed has to
find it. A schedule depends on what its process did before, so these tests run processes of their own.
"""

from __future__ import annotations

from itertools import chain

import pytest

from tests.races.mutants import MUTANTS
from tests.races.slices import raced

#: Races that showed a fault of the shipped code once: the scene, the calls, the seed.
FOUND = (
    ("streams", "close", "fork", "6"),
    ("streams", "append", "delete", "1"),
    ("streams", "delete", "delete", "1"),
    ("streams", "close", "look", "1690175066"),
    ("tokens", "revoke", "wait for records", "268"),
    ("archives", "rename the branch", "rename the branch", "1442"),
    ("commands", "promote and carry", "read", "702692"),
    ("commands", "undo a commit", "read the past", "703000"),
    ("commands", "append", "topic/delete", "484637398"),
    ("commands", "reset", "resolve and pin", "484642162"),
    ("commands", "branch/promote", "topic/set", "484643773"),
    ("commands", "branch/promote", "topic/delete", "700002630"),
    ("commands", "undo a commit", "topic/set", "700002992"),
    ("commands", "undo a commit", "topic/set", "44"),
    ("commands", "pause", "topic/set", "107"),
    ("commands", "branch/rename", "undo", "484643607"),
    ("archives", "rename the branch", "promote another", "100"),
    ("commands", "promote and carry", "diff", "484643966"),
    ("commands", "promote and carry", "branch/diff", "700002716"),
    ("commands", "evict", "read", "484638261"),
    ("commands", "delete", "topic/delete", "2000000772"),
    ("commands", "branch/delete", "branch/delete", "2000006045"),
    ("commands", "topic/delete", "topic/delete", "2000007800"),
    ("commands", "branch/promote", "status", "2000006608"),
    ("commands", "tag/delete", "tag/delete", "3100001392"),
    ("commands", "gc", "gc", "484637764"),
    ("commands", "retry", "branch/promote", "484638069"),
    ("commands", "gc", "gc/apply", "484637766"),
    ("commands", "pause", "branch/promote", "484638048"),
    ("commands", "evict", "promote and carry", "484637407"),
    ("topics", "read one", "truncate by laminarmq", "2868423212"),
    ("topics", "delete topic", "probes", "2868421104"),
    ("topics", "truncate", "read one", "2868420867"),
)


@pytest.mark.long
def test_races_find_each_fault_whose_mend_is_taken_back() -> None:
    assert raced("mutants", *MUTANTS) == f"{len(MUTANTS)} mutants found"


@pytest.mark.long
def test_races_that_showed_faults_show_none() -> None:
    lines = raced(*chain.from_iterable(FOUND)).splitlines()
    assert [line.split()[0] for line in lines] == ["fine"] * len(FOUND)
