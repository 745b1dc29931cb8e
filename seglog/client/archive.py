"""The archive of a daemon, for a program: offload, removals that can be undone, restore and branches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Unpack, cast

from seglog.base.arguments import checked
from seglog.client.commands import (
    RemoteBranch,
    RemoteOffloaded,
    RemoteRestored,
    branches_of,
    change_of,
    evict_of,
    offload_of,
    restore_of,
    truncate_of,
)
from seglog.client.driver import Driver
from seglog.client.reading import Reading
from seglog.client.requests import Asked
from seglog.values.names import check_topic_name
from seglog.values.protocols import DeleteArguments, Removed
from seglog.values.record import Record

if TYPE_CHECKING:
    from seglog.client.client import RemoteTopic


class RemoteArchive:
    """The archive of a daemon: `Client.archive`. Its calls are those of `offload.Archive`.

    No call is repeated after a lost answer. Raise `DaemonGone` then, and the caller looks what is done. Raise
    what an archive raises, and `DaemonError` for what only a daemon refuses, such as a wrong token.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __repr__(self) -> str:
        return f"<RemoteArchive of {self._driver.address}>"

    @property
    def branches(self) -> RemoteBranches:
        return RemoteBranches(self._driver)

    @checked
    def offload(self, name: str, *, up_to: int | None = None, drop_hot: bool = False) -> RemoteOffloaded:
        """Upload the sealed segments of a topic, and publish them. `up_to` and `drop_hot` are as in an archive here."""
        return self._driver.result(offload_of(name, up_to, drop_hot=drop_hot))

    @checked
    def read(
        self, name: str, start: int | None = None, end: int | None = None, *, at: str | None = None
    ) -> Iterator[Record]:
        """Yield the live records of a topic or branch, of now or of a past state.

            for record in client.archive.read("orders", at="head~1"):
                print(record.seq, record.value)

        The daemon has the topic, or follows it. The read resumes after a lost connection, in the same state.

        Args:
            name: The topic, or TOPIC@BRANCH.
            start: The first seq; None is the first live record.
            end: The last seq, inclusive; None is the head.
            at: The state: `seq:N`, `lsn:N`, `head~N`, `tag:NAME`, `pin:NAME`, or a time such as `20 minutes ago`. None
                is the newest. `head` is for a topic that the daemon follows: one that it writes has newer records.

        Raises:
            SeglogError: As `offload.Archive.read` does, at the first record.
        """
        items = self._driver.items(Reading(check_topic_name(name), Asked(start, end, at=at)))
        return cast("Iterator[Record]", items)

    @checked
    def delete(self, name: str, *, message: str = "", **conditions: Unpack[DeleteArguments]) -> Removed:
        """Delete the records that meet each condition. If the daemon has a remote, a commit says so, with `message`.

        A `grep` that the daemon does not take is looked up here, as in `RemoteTopic.delete`.
        """
        return self._driver.delete(name, conditions, message)

    @checked
    def evict(self, name: str, before: int, *, message: str = "") -> Removed:
        """Evict the records below seq `before`, in the remote too."""
        return self._driver.result(evict_of(name, before, message))

    @checked
    def truncate(self, name: str, seq: int, *, message: str = "") -> Removed:
        """Remove the records from `seq` on. Later appends use these seqs again."""
        return self._driver.result(truncate_of(name, seq, message))

    @checked
    def restore(self, topic: str, *, to: str, name: str, message: str = "") -> RemoteRestored:
        """Create the branch `name` with the state of the topic at `to`: seq:N, lsn:N, head~N, tag:NAME or a time."""
        return self._driver.result(restore_of(topic, to, name, message))

    @checked
    def open_for_append(self, name: str) -> RemoteTopic:
        """Return the topic, without a request. The daemon takes a branch over with the first append to it."""
        from seglog.client.client import RemoteTopic

        return RemoteTopic(self._driver, check_topic_name(name))


class RemoteBranches:
    """The branches of a daemon's topics. `RemoteArchive.restore` makes one."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @checked
    def list(self, topic: str, *, deleted: bool = False) -> list[RemoteBranch]:
        """Return every branch of a topic in the remote. With `deleted`, include those that can be undeleted."""
        return self._driver.result(branches_of(topic, deleted=deleted))

    @checked
    def delete_branch(self, topic: str, branch: str, *, message: str = "") -> None:
        """Delete the branch. `undelete_branch` restores it within the window."""
        self._driver.result(change_of("delete", topic, branch, message=message, yes=True))

    @checked
    def undelete_branch(self, topic: str, branch: str) -> None:
        """Restore a deleted branch."""
        self._driver.result(change_of("undelete", topic, branch))

    @checked
    def rename_branch(self, topic: str, branch: str, new: str) -> None:
        """Rename the branch to `new`."""
        self._driver.result(change_of("rename", topic, branch, new=new))
