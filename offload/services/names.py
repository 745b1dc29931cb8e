"""The names of states in the remote: `archive.branches`, `archive.tags`, and `archive.pins`.

GC keeps what a name shows. A pin is a lease on a point of the past, which ends by itself. `archive.history.pin` makes
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from catalog import MAIN, Branch
from catalog.errors import NoSuchBranch, NoSuchObject, NoSuchTag, tag_exists
from catalog.format import keys
from catalog.format.control import Tag, full_name
from catalog.objects.object_store import is_behind_proxy
from catalog.refs.branch import Distance
from catalog.refs.state_names import HeldPin, NamedTag, Pins
from offload.errors import open_branch
from offload.handles import split_name
from offload.moment import format_time
from offload.services.archive_parts import ArchiveParts, OfArchive
from offload.services.restoring import offloaded_point
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass
from seglog.base.ownership import Owned

if TYPE_CHECKING:
    from offload.services.promotion import Promoted


class BranchService(OfArchive, Owned):
    """The calls about branches. `Archive.restore` makes one."""

    @checked
    def list(self, topic: str, *, deleted: bool = False) -> list[Branch]:
        """Return every branch of a topic in the remote, by name.

            >>> restored = archive.restore("orders", to="seq:2", name="half")
            >>> [branch.branch for branch in archive.branches.list("orders")]
            ['half', 'main']

        Args:
            topic: The topic.
            deleted: Include the branches that can be undeleted.

        Raises:
            NoSuchTopic: The remote has no such topic.
        """
        return self._branches.branches(topic, deleted=deleted)

    @checked
    def distances(self, branches: Sequence[Branch]) -> Sequence[Distance]:
        """Return how far each branch and its parent have moved since the fork."""
        return self._branches.distances(branches)

    @checked
    def remote_names(self, *, from_proxy: bool = False) -> Sequence[str]:
        """Return the names of all topics and branches in the remote, ascending, deleted branches included.

        With `from_proxy` they are those that a proxy follows, if the remote is one: it asks the store for nothing.
        """
        if from_proxy and is_behind_proxy(self._store):
            return self._store.followed()
        return sorted(full_name(topic, branch) for topic, branch in self._branches.names())

    @checked
    def delete_branch(self, topic: str, branch: str, *, message: str = "") -> Branch:
        """Delete the branch. `undelete_branch` restores it during the PITR window.

            >>> restored = archive.restore("orders", to="seq:2", name="half")
            >>> deleted = archive.branches.delete_branch("orders", "half")
            >>> archive.branches.undelete_branch("orders", "half").branch
            'half'

        Args:
            topic: The topic.
            branch: The branch.
            message: What the oplog says.

        Raises:
            NoSuchBranch: There is none of that name.
            Conflict: This directory has the branch open for appends.
            Misuse: main is the topic itself.
        """
        self._check_not_open(topic, branch)
        return self._branches.delete(topic, branch, now_ms=self._clock.now_ms(), message=message)

    @checked
    def undelete_branch(self, topic: str, branch: str) -> Branch:
        """Restore a deleted branch.

        Raises:
            NoSuchBranch: There is no deleted branch of that name.
            VolumeHasName: The branch was renamed meanwhile.
            OutOfWindow: GC has collected it.
        """
        self._log.check_writable()
        return self._branches.undelete(topic, branch, now_ms=self._clock.now_ms())

    @checked
    def rename_branch(self, topic: str, branch: str, new: str) -> Branch:
        """Rename the branch to `new`.

            >>> restored = archive.restore("orders", to="seq:2", name="half")
            >>> archive.branches.rename_branch("orders", "half", "first-two").branch
            'first-two'

        Raises:
            NoSuchBranch: There is none of that name.
            BranchExists: There is a branch `new`.
            Conflict: This directory has the branch open for appends.
            Misuse: main is the topic itself.
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
        """Make the branch the topic's main (offload.services.promotion). The former main stays as a branch.

            >>> restored = archive.restore("orders", to="seq:3", name="clean")
            >>> removed = archive.delete("orders", tag="eu")
            >>> promoted = archive.branches.promote_branch("orders", "clean", keep="spoiled")
            >>> len(list(archive.read("orders")))
            3

        The call first offloads what this directory has of both, and then drops its hot copies. Writers of both in other
        directories are fenced. After an error, repeat the call.

        Args:
            topic: The topic.
            branch: The branch that becomes main.
            keep: The name that the former main gets; by default `before-promote-` and the time.
            carry: Append the records that main got since the fork to the branch first, with new seqs.
            leave: Leave them in the former main only.
            message: What the oplog says.

        Raises:
            RecordsAfterFork: main has records that the branch lacks. Choose `carry` or `leave`.
            NoSuchTopic, NoSuchBranch, BranchExists: Nothing was changed.
            KeyChanged, VolumeHasName: Another promotion came first.
            Conflict: The branch has other records than an earlier promotion with `carry` brought there.
            Diverged: Another directory writes one of them.
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
            raise open_branch(f"{topic}@{branch}")


def _name_of_former(now_ms: int) -> str:
    """Return a name such as `before-promote-20261122T093000Z`."""
    seconds, _, _ = format_time(now_ms).replace("-", "").replace(":", "").partition(".")
    return f"before-promote-{seconds}Z"


class TagService(OfArchive, Owned):
    """The calls about tags."""

    @checked
    def tag(self, topic: str, name: str, *, to: str = "head", message: str = "") -> Tag:
        """Name a state of the topic, so that GC keeps it until the tag is deleted.

            >>> tag = archive.tags.tag("orders", "before-import")
            >>> len(list(archive.read("orders", at="tag:before-import")))
            3

        If the remote lacks the state, the call seals and offloads the topic once.

        Args:
            topic: The topic, or a branch as TOPIC@BRANCH.
            name: The name of the tag.
            to: The state, as in `Archive.restore`.
            message: What the tag says.

        Raises:
            Conflict: Choose another name, or delete that tag first.
            SeglogError: As `Archive.restore` does.
        """
        self._log.check_writable()
        base, branch = split_name(topic)
        point = offloaded_point(self._parts, topic, to, lambda: self._check_free(base, name))
        return self._tags.create(base, name, point, branch=branch, now_ms=self._clock.now_ms(), message=message)

    def _check_free(self, topic: str, name: str) -> None:
        with suppress(NoSuchTag):
            self._tags.get(topic, name)
            raise tag_exists(topic, name)

    @checked
    def list(self, topic: str) -> list[NamedTag]:
        """Return the tags of a topic, by name.

            >>> tag = archive.tags.tag("orders", "before-import")
            >>> [named.name for named in archive.tags.list("orders")]
            ['before-import']

        Raises:
            NoSuchTopic: There is none here and in the remote.
        """
        tags = self._tags.list(topic)
        if not tags and not self._log.has_topic(topic) and self._handles.find(topic) is None:
            with suppress(NoSuchBranch):  # a topic with branches and no main
                self._handles.resolve(topic)
        return tags

    @checked
    def delete_tag(self, topic: str, name: str) -> Tag:
        """Delete a tag of the topic, so that GC no longer keeps its state for it.

            >>> tag = archive.tags.tag("orders", "before-import")
            >>> tag = archive.tags.delete_tag("orders", "before-import")

        Raises:
            NoSuchTag: There is none.
        """
        self._log.check_writable()
        return self._tags.delete(topic, name, now_ms=self._clock.now_ms())


@dataclass(frozen=True, slots=True)
class TopicPin:
    """A pin, and the topic of its volume. `topic` is None if GC has collected the volume."""

    topic: str | None
    held: HeldPin
    is_expired: bool


class PinService(OfArchive, Owned):
    """The calls about pins. A holder of another machine may have made them."""

    def __init__(self, parts: ArchiveParts) -> None:
        super().__init__(parts)
        self._pins = Pins(self._context.volumes)

    @checked
    def list(self, topic: str | None = None) -> Iterator[TopicPin]:
        """Yield the pins by name, expired ones included.

            >>> pin = archive.history.pin(archive.history.point("orders", "head"), ttl_s=600)
            >>> [pin.topic for pin in archive.pins.list()]
            ['orders']

        Args:
            topic: Only the pins on the volumes of this topic.
        """
        name = None if topic is None else split_name(topic)[0]
        for pin in self._pins.list():
            topic_pin = self._shown(pin)
            if name is None or topic_pin.topic == name:
                yield topic_pin

    @checked
    def refresh(self, name: str, ttl_s: int) -> TopicPin:
        """Let the pin hold for that time from now on, or longer if it does already.

        Args:
            name: The name of the pin.
            ttl_s: So many seconds.

        Raises:
            NoSuchPin: There is none.
            PinLost: The pin has expired, and its state may be gone.
        """
        self._log.check_writable()
        pin, now_ms = self._pins.find(name), self._clock.now_ms()
        ttl_ms = max(ttl_s * 1000, pin.pin.expires_at_ms - now_ms)
        return self._shown(self._pins.renew(pin, ttl_ms=ttl_ms, now_ms=now_ms))

    @checked
    def release(self, name: str) -> TopicPin:
        """End the pin now. GC no longer keeps its state for it.

        Raises:
            NoSuchPin: There is none.
        """
        self._log.check_writable()
        pin = self._pins.find(name)
        self._pins.release(pin, now_ms=self._clock.now_ms())
        return self._shown(self._pins.find(name))

    def _shown(self, pin: HeldPin) -> TopicPin:
        topic = None
        with suppress(NoSuchObject):
            topic = self._volumes.control(pin.pin.point.vid).topic
        return TopicPin(topic, pin, pin.pin.expires_at_ms <= self._clock.now_ms())
