"""The archive of a daemon for asyncio. It does what `seglog.client.archive` does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Unpack, cast

from seglog.base.arguments import checked
from seglog.client.aio.driver import AsyncDriver
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
from seglog.client.reading import Reading
from seglog.client.requests import Asked
from seglog.values.names import check_topic_name
from seglog.values.protocols import DeleteArguments, Removed
from seglog.values.record import Record

if TYPE_CHECKING:
    from seglog.client.aio.client import AsyncRemoteTopic


class AsyncRemoteArchive:
    """The archive of a daemon: `AsyncClient.archive`. Its calls are those of `RemoteArchive`, awaited."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver

    def __repr__(self) -> str:
        return f"<AsyncRemoteArchive of {self._driver.address}>"

    @property
    def branches(self) -> AsyncRemoteBranches:
        return AsyncRemoteBranches(self._driver)

    @checked
    async def offload(self, name: str, *, up_to: int | None = None, drop_hot: bool = False) -> RemoteOffloaded:
        """Upload the sealed segments of a topic, and publish them. `up_to` and `drop_hot` are as in an archive here."""
        return await self._driver.result(offload_of(name, up_to, drop_hot=drop_hot))

    @checked
    def read(
        self, name: str, start: int | None = None, end: int | None = None, *, at: str | None = None
    ) -> AsyncIterator[Record]:
        """Yield the records that `RemoteArchive.read` yields, and raise its errors."""
        items = self._driver.items(Reading(check_topic_name(name), Asked(start, end, at=at)))
        return cast("AsyncIterator[Record]", items)

    @checked
    async def delete(self, name: str, *, message: str = "", **conditions: Unpack[DeleteArguments]) -> Removed:
        """Delete the records that meet each condition, as `RemoteArchive.delete` does."""
        return await self._driver.delete(name, conditions, message)

    @checked
    async def evict(self, name: str, before: int, *, message: str = "") -> Removed:
        """Evict the records below seq `before`, in the remote too."""
        return await self._driver.result(evict_of(name, before, message))

    @checked
    async def truncate(self, name: str, seq: int, *, message: str = "") -> Removed:
        """Remove the records from `seq` on. Later appends use these seqs again."""
        return await self._driver.result(truncate_of(name, seq, message))

    @checked
    async def restore(self, topic: str, *, to: str, name: str, message: str = "") -> RemoteRestored:
        """Create the branch `name` with the state of the topic at `to`: seq:N, lsn:N, head~N, tag:NAME or a time."""
        return await self._driver.result(restore_of(topic, to, name, message))

    @checked
    async def open_for_append(self, name: str) -> AsyncRemoteTopic:
        """Return the topic, without a request. The daemon takes a branch over with the first append to it."""
        from seglog.client.aio.client import AsyncRemoteTopic

        return AsyncRemoteTopic(self._driver, check_topic_name(name))


class AsyncRemoteBranches:
    """The branches of a daemon's topics. `AsyncRemoteArchive.restore` makes one."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver

    @checked
    async def list(self, topic: str, *, deleted: bool = False) -> list[RemoteBranch]:
        """Return every branch of a topic in the remote. With `deleted`, include those that can be undeleted."""
        return await self._driver.result(branches_of(topic, deleted=deleted))

    @checked
    async def delete_branch(self, topic: str, branch: str, *, message: str = "") -> None:
        """Delete the branch. `undelete_branch` restores it within the window."""
        await self._driver.result(change_of("delete", topic, branch, message=message, yes=True))

    @checked
    async def undelete_branch(self, topic: str, branch: str) -> None:
        """Restore a deleted branch."""
        await self._driver.result(change_of("undelete", topic, branch))

    @checked
    async def rename_branch(self, topic: str, branch: str, new: str) -> None:
        """Rename the branch to `new`."""
        await self._driver.result(change_of("rename", topic, branch, new=new))
