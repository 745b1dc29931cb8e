"""What a new machine finds in the remote after a race."""

from __future__ import annotations

from catalog import Volumes
from offload import Archive
from seglog import SeglogError
from tests.races.world import World

__all__ = ["ERRORS", "state_of_remote"]

ERRORS = SeglogError


def state_of_remote(world: World, topic: str) -> dict[str, object]:
    """Return what a new machine reads of each branch, tag and lease, and whether an epoch of a branch has two writers.

    A lease is named by the state that it holds, because its own name is random.
    """
    found: dict[str, object] = {}
    with world.opened("new") as (_, archive):
        for each in archive.branches.list(topic):
            found[each.branch] = _read(archive, topic if each.branch == "main" else f"{topic}@{each.branch}")
            writers: dict[int, set[str]] = {}
            for one in Volumes(world.store).next_commits(each.vid, 0):
                writers.setdefault(one.commit.epoch, set()).add(one.commit.writer_id)
            if any(len(names) > 1 for names in writers.values()):
                found[f"{each.branch} has an epoch of two writers"] = True
        for tag in archive.tags.list(topic):
            found[f"tag {tag.name}"] = _read(archive, topic, f"tag:{tag.name}")
        held = [pin.held.name for pin in archive.pins.list(topic) if not pin.is_expired]
        found["leases"] = sorted(_read(archive, topic, f"pin:{name}") for name in held)
    return found


def _read(archive: Archive, name: str, at: str | None = None) -> list[tuple[int, str]]:
    try:
        return [(record.seq, record.value.decode()) for record in archive.read(name, at=at)]
    except ERRORS as error:
        return [(0, type(error).__name__)]
