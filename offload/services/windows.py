"""The window of a topic: for how long GC keeps its past states."""

from __future__ import annotations

import json
from collections.abc import Callable

from catalog.retention import window_ms_of
from offload.context import ArchiveContext

__all__ = ["window_ms_here"]


def window_ms_here(context: ArchiveContext, name: str, remote_config: Callable[[], str]) -> int:
    """Return the window of a topic or branch in ms, as this directory knows it.

    The log knows a change of the configuration before the remote does. A replica uses `remote_config`.
    """
    log = context.log
    config = json.dumps(log.topic(name).config.to_json()) if log.has_topic(name) else remote_config()
    return window_ms_of(config, context.settings.pitr_window_s * 1000)
