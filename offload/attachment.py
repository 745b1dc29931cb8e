"""The attachment of a log to its remote: settings, checks, the store, and the archive over both."""

from __future__ import annotations

from catalog import Codec
from catalog.objects.base import ObjectStore
from offload.archive import Archive
from offload.context import open_context
from offload.errors import NoRemote
from offload.format.block import largest_entry
from offload.settings_file import Settings, read_settings
from offload.tenants.source import source_of
from offload.wiring import check_remote_apart, open_store
from offload.write.port import Uploader
from seglog import Log
from seglog.base.arguments import checked
from seglog.errors import InvalidSetting
from seglog.files.clock import Clock, SystemClock
from seglog.format.frame import LABEL_MAX_BYTES, MIN_FRAME_BYTES
from seglog.process import closing_after
from seglog.values.config import SETTINGS_FILE

__all__ = ["attach"]

_FRAME_OVERHEAD_BYTES = MIN_FRAME_BYTES + 2 * LABEL_MAX_BYTES


@checked
def attach(
    log: Log,
    url: str | None = None,
    *,
    store: ObjectStore | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    uploader: Uploader | None = None,
) -> Archive:
    """Give `log` its cold tier, so that its reads continue below the hot floor. Makes no request yet.

    If the log is open for reading only, the archive refuses every change, here and in the remote, with `ReadOnly`.
    `url` is `s3://bucket/prefix` or `file:///path`. The caller may give a `store` instead. By default, `settings` are
    the log's seglog.toml. They give the URL if the caller does not. `uploader` makes the objects of an offload; by
    default the offloading thread does.
    Raises `NoRemote`, `InvalidRemote`, `InvalidSetting`, `ColdTierAttached`.
    """
    settings = settings or read_settings(log.path / SETTINGS_FILE)
    # Read every part: a wrong section is refused before anything is opened.
    offload, cold, catalog = settings.offload, settings.cold, settings.catalog
    is_chosen = url is not None and settings.url is not None and url.rstrip("/") != settings.url.rstrip("/")
    url = url or settings.url
    if store is None:
        if not url:
            raise NoRemote(log.path)
        check_remote_apart(url, log.path)
        store = open_store(url, cold, offload, source_of(settings, url))
    largest = min(largest_entry(offload.block_size, codec) for codec in Codec)
    if log.settings.max_record_bytes + _FRAME_OVERHEAD_BYTES > largest:
        raise InvalidSetting(
            "offload.block_size",
            f"a record of log.max_record_bytes ({log.settings.max_record_bytes}) would not fit one",
        )
    context = open_context(log, store, cold, catalog, clock or SystemClock(), is_chosen=is_chosen)
    try:
        return Archive(context, offload, uploader)
    except BaseException as error:
        with closing_after(error):
            context.reader.close()
            context.local.close()
        raise
