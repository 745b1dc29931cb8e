"""The parts of one archive.

Each is imported and made at its first use, so that a command that only looks skips the encoder, the upload and the
merge: half of its CPU time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.context import ArchiveContext, part
from offload.replication.replica import Replicas
from offload.settings import OffloadSettings

if TYPE_CHECKING:
    from offload.replication.replica_follower import Epochs
    from offload.replication.reset import Reset
    from offload.replication.sync import Sync
    from offload.replication.takeover import Takeover
    from offload.services.states import TopicStates
    from offload.services.writer import Writer
    from offload.write.offloader import Offloader
    from offload.write.publisher import Publisher
    from offload.write.uploader import Uploader


class ArchiveParts:
    """What each service of an archive gets: the context, and by name the parts that do the work."""

    def __init__(self, context: ArchiveContext, settings: OffloadSettings, uploader: Uploader | None) -> None:
        """`uploader` is None if the thread that offloads also uploads."""
        self.context = context
        self.replicas = Replicas(context)
        self._settings = settings
        self._given_uploader = uploader

    def close(self) -> None:
        if self._given_uploader is not None:
            self._given_uploader.close()

    def change_settings(self, settings: OffloadSettings) -> None:
        """Use `settings` for every offload that begins from now on."""
        self._settings = settings
        self.offloader.settings = settings

    @part
    def publisher(self) -> Publisher:
        from offload.write.publisher import Publisher

        return Publisher(self.context)

    @part
    def offloader(self) -> Offloader:
        from offload.write.offloader import Offloader
        from offload.write.segment_upload import LocalUploader

        uploader = self._given_uploader or LocalUploader(self.context.store, self.context.reader)
        return Offloader(self.context, self._settings, self.publisher, uploader)

    @part
    def takeover(self) -> Takeover:
        from offload.replication.takeover import Takeover

        return Takeover(self.context, self.replicas, self.publisher)

    @part
    def reset(self) -> Reset:
        from offload.replication.reset import Reset

        return Reset(self.context, self.replicas, self.offloader, self.publisher)

    @part
    def sync(self) -> Sync:
        from offload.replication.sync import Sync

        return Sync(self.context, self.replicas, self.offloader, self.publisher, self.reset)

    @part
    def epochs(self) -> Epochs:
        from offload.replication.replica_follower import Epochs

        return Epochs(self.context, self.replicas, self.states.newest, self.states.live_floor)

    @part
    def states(self) -> TopicStates:
        from offload.services.states import TopicStates

        return TopicStates(self)

    @part
    def writer(self) -> Writer:
        from offload.services.writer import Writer

        return Writer(self)
