"""The parts of an archive that change a log or its remote. Each is imported and made when it is first used.

So a command that only looks imports no encoder, no upload and no merge. It takes half of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from offload.context import ArchiveContext
from offload.replication.replica import Replicas
from offload.services.remote_states import RemoteStates
from offload.services.targets import Targets
from offload.settings import OffloadSettings
from offload.write.publisher import Publisher

if TYPE_CHECKING:
    from offload.replication.reset import Reset
    from offload.replication.sync import Sync
    from offload.replication.takeover import Takeover, Writers
    from offload.services.offloading import Offloading
    from offload.services.own_topics import OwnTopics
    from offload.services.previews import SoleNames
    from offload.services.promotion import Promotion
    from offload.services.removal import Removal
    from offload.services.undoing import Undoing
    from offload.write.offloader import Offloader
    from offload.write.port import Uploader

__all__ = ["Machinery", "part"]

T = TypeVar("T")


class part(Generic[T]):  # noqa: N801 - a decorator, like `property`
    """An attribute that its function makes at the first use. It takes no lock.

    If two threads use it first, both make one, and both get the same one of the two. So the function only makes an
    object.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> part[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: object, kind: type) -> part[T] | T:
        if owner is None:  # a tool looks at the class, as `inspect` does
            return self
        found: T = vars(owner).setdefault(self._name, self._make(owner))
        return found


class Machinery:
    def __init__(self, context: ArchiveContext, settings: OffloadSettings, uploader: Uploader | None) -> None:
        """`uploader` is None if the thread that offloads also uploads."""
        self._context = context
        self._settings = settings
        self._given_uploader = uploader
        self.publisher = Publisher(context)
        self.states = RemoteStates(context, self.publisher)
        self.replicas = Replicas(context)
        self.targets = Targets(context, self.states)

    def close(self) -> None:
        if self._given_uploader is not None:
            self._given_uploader.close()

    def change_settings(self, settings: OffloadSettings) -> None:
        """Use `settings` for every offload that begins from now on."""
        self._settings = settings
        self.offloader.settings = settings

    @part
    def offloader(self) -> Offloader:
        from offload.write.offloader import Offloader
        from offload.write.segment_upload import LocalUploader

        uploader = self._given_uploader or LocalUploader(self._context.store, self._context.reader)
        return Offloader(self._context, self._settings, self.publisher, uploader)

    @part
    def takeover(self) -> Takeover:
        from offload.replication.takeover import Takeover

        return Takeover(self._context, self.replicas, self.publisher)

    @part
    def reset(self) -> Reset:
        from offload.replication.reset import Reset

        return Reset(self._context, self.replicas, self.offloader, self.publisher)

    @part
    def sync(self) -> Sync:
        from offload.replication.sync import Sync

        return Sync(self._context, self.replicas, self.offloader, self.publisher, self.reset)

    @part
    def writers(self) -> Writers:
        from offload.replication.takeover import Writers

        return Writers(self._context, self.replicas, self.takeover)

    @part
    def offloading(self) -> Offloading:
        from offload.services.offloading import Offloading

        return Offloading(self._context, self.states, self.targets, self.writers, self.offloader)

    @part
    def removal(self) -> Removal:
        from offload.services.removal import Removal

        return Removal(self._context, self.states, self.writers, self.offloader, self.replicas, self.reset)

    @part
    def own_topics(self) -> OwnTopics:
        from offload.services.own_topics import OwnTopics

        return OwnTopics(self._context, self.writers, self.offloader, self.publisher, self.reset)

    @part
    def promotion(self) -> Promotion:
        from offload.services.promotion import Carrying, Promotion

        carrying = Carrying(self._context, self.writers, self.offloader)
        return Promotion(self._context, self.own_topics, carrying, self.replicas)

    @part
    def undoing(self) -> Undoing:
        from offload.services.undoing import Undoing

        return Undoing(self._context, self.own_topics, self.replicas)

    @part
    def sole_names(self) -> SoleNames:
        from offload.services.previews import PreviewService, SoleNames

        return SoleNames(self._context, PreviewService(self._context, self.states, self.replicas))
