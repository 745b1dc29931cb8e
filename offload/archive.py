"""A log with its cold tier: offload, reads over both tiers, deletes that can be undone, branches and restore.

    log = seglog.open("data")
    archive = offload.attach(log, "s3://bucket/acme")
    archive.offload("orders")
    archive.restore("orders", to="seq:42", name="half")

A topic of the log has a *handle* in the local catalog. The handle names the volume in the remote that carries the
topic's history, and the newest commit of it that this directory knows. `TOPIC@BRANCH` names a branch; plain `TOPIC` is
the branch `main`.

Appends and hot reads make no call here, so a slow or dead store touches neither.
"""

from __future__ import annotations

from types import TracebackType

from catalog import Codec
from catalog.objects.base import ObjectStore
from offload.errors import NoRemote
from offload.format.block import largest_entry
from offload.services.cuts import CutCalls, Truncated
from offload.services.names import NameCalls, Restored
from offload.services.offloading import Deleted, OffloadResult
from offload.services.replicas import ReplicaCalls
from offload.services.topic_status import TopicStatus
from offload.services.upkeep import OrphanUpload, UpkeepCalls
from offload.settings import CatalogSettings, ColdSettings, OffloadSettings
from offload.settings_file import Settings, read_settings
from offload.wiring import check_remote_apart, open_store
from offload.write.uploader import Sender
from seglog import Log
from seglog.arguments import checked
from seglog.errors import InvalidSetting
from seglog.files.clock import Clock, SystemClock
from seglog.format.frame import LABEL_MAX_BYTES, MIN_FRAME_BYTES
from seglog.values.config import SETTINGS_FILE

__all__ = ["Archive", "Deleted", "OffloadResult", "OrphanUpload", "Restored", "TopicStatus", "Truncated", "attach"]

_FRAME_OVERHEAD_BYTES = MIN_FRAME_BYTES + 2 * LABEL_MAX_BYTES


@checked
def attach(
    log: Log,
    url: str | None = None,
    *,
    store: ObjectStore | None = None,
    settings: OffloadSettings | None = None,
    cold: ColdSettings | None = None,
    upkeep: CatalogSettings | None = None,
    configured: Settings | None = None,
    clock: Clock | None = None,
    sender: Sender | None = None,
) -> Archive:
    """Give `log` its cold tier, so that its reads continue below the hot floor. Makes no request yet.

    If the log is open for reading only, the archive refuses every change, here and in the remote, with `ReadOnly`.
    `url` is `s3://bucket/prefix` or `file:///path`. The caller may give a `store` instead. `settings`, `cold` and
    `upkeep` are the sections [offload], [cold] and [catalog]. `configured` gives these and the URL where the caller
    does not; by default `configured` is the log's seglog.toml. `sender` makes the objects of an offload; by default the
    offloading thread does.
    Raises `NoRemote`, `InvalidRemote`, `InvalidSetting`, `ColdTierAttached`.
    """
    configured = configured or read_settings(log.path / SETTINGS_FILE)
    settings = settings or configured.offload
    cold = cold or configured.cold
    upkeep = upkeep or configured.catalog
    url = url or configured.url
    if store is None:
        if not url:
            raise NoRemote(log.path)
        check_remote_apart(url, log.path)
        store = open_store(url, cold, settings)
    largest = min(largest_entry(settings.block_size, codec) for codec in Codec)
    if log.settings.max_record_bytes + _FRAME_OVERHEAD_BYTES > largest:
        raise InvalidSetting(
            "offload.block_size",
            f"a record of log.max_record_bytes ({log.settings.max_record_bytes}) would not fit one",
        )
    return Archive(log, store, settings, cold, upkeep, clock or SystemClock(), sender)


class Archive(NameCalls, CutCalls, ReplicaCalls, UpkeepCalls):
    """The cold tier of one log. A context manager: closing the archive leaves the log open."""

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
