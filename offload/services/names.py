"""The names of states in the remote: `archive.branches`, `archive.tags`, and `archive.pins`.

GC keeps what a name shows. A pin is a lease on a point of the past, which ends by itself. `archive.history.pin` makes
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from catalog import MAIN, Branch
from catalog.errors import NoSuchBranch, NoSuchObject, NoSuchTag, TagExists
from catalog.format import keys
from catalog.format.control import Tag, full_name
from catalog.refs.branch import Distance
from catalog.refs.state_names import HeldPin, NamedTag, Pins
from offload.errors import OpenBranch
from offload.handles import split_name
from offload.moment import format_time
from offload.services.parts import ArchiveParts
from seglog.base.arguments import checked
from seglog.base.ownership import Owned
from seglog.base.values import dataclass

if TYPE_CHECKING:
    from offload.services.promotion import Promoted


class BranchService(Owned):
    """The calls about branches. `Archive.restore` makes one."""

    def __init__(self, parts: ArchiveParts) -> None:
        context = parts.context
        self._log = context.log
        self._branches = context.branches
        self._clock = context.clock
        self._parts = parts

    @checked
    def list(self, topic: str, *, deleted: bool = False) -> list[Branch]:
        """Return every branch of a topic in the remote, by name. With `deleted`, include the branches that can be
        undeleted.

        Raises `NoSuchTopic`.
        """
        return self._branches.branches(topic, deleted=deleted)

    @checked
    def distances(self, branches: Sequence[Branch]) -> Sequence[Distance]:
        """Return how far each branch and its parent have moved since the fork."""
        return self._branches.distances(branches)

    def remote_names(self) -> Sequence[str]:
        """Return the names of all topics and branches in the remote, ascending, deleted branches included."""
        return sorted(full_name(topic, branch) for topic, branch in self._branches.names())

    @checked
    def delete_branch(self, topic: str, branch: str, *, message: str = "") -> Branch:
        """Delete the branch. `undelete_branch` restores it during the PITR window. The oplog keeps `message`.

        Raises `NoSuchBranch`, `OpenBranch` if this directory has the branch open for appends, and `UnnamableBranch` for
        main.
        """
        self._check_not_open(topic, branch)
        return self._branches.delete(topic, branch, now_ms=self._clock.now_ms(), message=message)

    @checked
    def undelete_branch(self, topic: str, branch: str) -> Branch:
        """Restore a deleted branch.

        Raises `NoSuchBranch`, `VolumeHasName` if the branch was renamed meanwhile, and `OutOfWindow` if GC collected
        it.
        """
        self._log.check_writable()
        return self._branches.undelete(topic, branch, now_ms=self._clock.now_ms())

    @checked
    def rename_branch(self, topic: str, branch: str, new: str) -> Branch:
        """Rename the branch to `new`. Raises `NoSuchBranch`, `BranchExists`, `OpenBranch`, and `UnnamableBranch` for
        main.
        """
        self._check_not_open(topic, branch)
        return self._branches.rename(topic, branch, new, now_ms=self._clock.now_ms())

    @checked
    def promote_branch(
        self,
        topic: str,
        branch: str,
        *,
        keep: str | None = None,
        carry: bool = False,
        leave: bool = False,
        message: str = "",
    ) -> Promoted:
        """Make the branch the topic's main (offload.services.promotion). The former main stays as the branch `keep`.

        By default, `keep` is `before-promote-` and the time. The call first offloads what this directory has of both,
        and then drops its hot copies. Writers of both in other directories are fenced.

        Raises `RecordsAfterFork` if main has records that the branch lacks. With `carry`, the call appends them to the
        branch first, with new seqs. With `leave`, they stay in the former main only. Raises
        `NoSuchTopic`, `NoSuchBranch`, `BranchExists`, `KeyChanged` or `VolumeHasName` for a lost race, `Diverged`, and
        what the store raises. After an error, the caller repeats the call.
        """
        from offload.services.promotion import Promotion

        if keep is None:
            keep = self._name_of_an_earlier_try(topic, branch) or _name_of_former(self._clock.now_ms())
        keys.check_name("branch", keep)
        return Promotion(self._parts).run(topic, branch, keep, carry=carry, leave=leave, message=message)

    def _name_of_an_earlier_try(self, topic: str, branch: str) -> str | None:
        """Return the name that a promotion gave to main's volume before it ended early, or None."""
        branches = self._branches.branches(topic)
        mains = {ref.vid for ref in branches if ref.branch == MAIN}
        names = [ref.branch for ref in branches if ref.vid in mains and ref.branch not in {MAIN, branch}]
        return names[0] if names else None

    def _check_not_open(self, topic: str, branch: str) -> None:
        self._log.check_writable()
        if branch != MAIN and self._log.has_topic(f"{topic}@{branch}"):
            raise OpenBranch(f"{topic}@{branch}")


def _name_of_former(now_ms: int) -> str:
    """Return a name such as `before-promote-20261122T093000Z`."""
    seconds, _, _ = format_time(now_ms).replace("-", "").replace(":", "").partition(".")
    return f"before-promote-{seconds}Z"


class TagService(Owned):
    """The calls about tags."""

    def __init__(self, parts: ArchiveParts) -> None:
        context = parts.context
        self._log = context.log
        self._tags = context.tags
        self._handles = context.handles
        self._clock = context.clock
        self._parts = parts

    @checked
    def tag(self, topic: str, name: str, *, to: str = "head", message: str = "") -> Tag:
        """Name a point of the topic, so that GC keeps it. `topic` may also be a branch, as TOPIC@BRANCH.

        If the remote lacks the point, the call seals and offloads the topic once. Raises `TagExists`, and what
        `Archive.restore` raises.
        """
        self._log.check_writable()
        base, branch = split_name(topic)
        point = self._parts.writer.keep_point(topic, to, lambda: self._check_free(base, name))
        return self._tags.create(base, name, point, branch=branch, now_ms=self._clock.now_ms(), message=message)

    def _check_free(self, topic: str, name: str) -> None:
        with suppress(NoSuchTag):
            self._tags.get(topic, name)
            raise TagExists(topic, name)

    @checked
    def list(self, topic: str) -> list[NamedTag]:
        """Return the tags of a topic, by name. Raises `NoSuchTopic`."""
        tags = self._tags.list(topic)
        if not tags and not self._log.has_topic(topic) and self._handles.find(topic) is None:
            with suppress(NoSuchBranch):  # a topic with branches and no main
                self._handles.resolve(topic)
        return tags

    @checked
    def delete_tag(self, topic: str, name: str) -> Tag:
        """Delete a tag of the topic. Raises `NoSuchTag`."""
        self._log.check_writable()
        return self._tags.delete(topic, name, now_ms=self._clock.now_ms())


@dataclass(frozen=True, slots=True)
class TopicPin:
    """A pin, and the topic of its volume. `topic` is None if GC has collected the volume."""

    topic: str | None
    held: HeldPin
    is_expired: bool


class PinService(Owned):
    """The calls about pins. A holder of another machine may have made them."""

    def __init__(self, parts: ArchiveParts) -> None:
        context = parts.context
        self._log = context.log
        self._volumes = context.volumes
        self._clock = context.clock
        self._pins = Pins(context.volumes)

    @checked
    def list(self, topic: str | None = None) -> Iterator[TopicPin]:
        """Yield the pins by name, expired ones included. With `topic`, yield only those on the topic's volumes."""
        name = None if topic is None else split_name(topic)[0]
        for pin in self._pins.list():
            topic_pin = self._shown(pin)
            if name is None or topic_pin.topic == name:
                yield topic_pin

    @checked
    def refresh(self, name: str, ttl_s: int) -> TopicPin:
        """Let the pin hold for that time from now on, or longer if it does already.

        Raises `NoSuchPin`, and `PinLost` if the pin has expired: its state may be gone.
        """
        self._log.check_writable()
        pin, now_ms = self._pins.find(name), self._clock.now_ms()
        ttl_ms = max(ttl_s * 1000, pin.pin.expires_at_ms - now_ms)
        return self._shown(self._pins.renew(pin, ttl_ms=ttl_ms, now_ms=now_ms))

    @checked
    def release(self, name: str) -> TopicPin:
        """End the pin now. GC no longer keeps its state for it. Raises `NoSuchPin`."""
        self._log.check_writable()
        pin = self._pins.find(name)
        self._pins.release(pin, now_ms=self._clock.now_ms())
        return self._shown(self._pins.find(name))

    def _shown(self, pin: HeldPin) -> TopicPin:
        topic = None
        with suppress(NoSuchObject):
            topic = self._volumes.control(pin.pin.point.vid).topic
        return TopicPin(topic, pin, pin.pin.expires_at_ms <= self._clock.now_ms())
