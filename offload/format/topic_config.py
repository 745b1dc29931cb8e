"""A topic's configuration as its volume keeps it, in commits of kind config, and back.

The text is canonical JSON of `TopicConfig.to_json`, with the attributes (codec, pitr_window_s, triggers), without:

    keep_history     every topic with a volume has it
    offload_paused   it is about one directory only
    rescued_from     likewise: the topic whose records a branch was made for, and how their seqs changed
                     (offload.replication.reset)

A volume without such a commit has the default configuration. No I/O.
"""

from __future__ import annotations

from dataclasses import replace

from catalog.errors import InvalidObject
from seglog.errors import InvalidSetting
from seglog.values import canonical
from seglog.values.config import TopicConfig

PAUSED = "offload_paused"
"""An attribute: the daemon leaves the topic alone."""

RESCUED_FROM = "rescued_from"
"""An attribute: the id of a topic of this log, and a number. A record's seq here is its seq there minus the number."""

CARRIED_FROM = "carried_from"
"""An attribute of a branch that was promoted with --carry: the volume of the former main, the shared seq, and which
records it carried (offload.services.promotion).
"""


def shared_attributes(config: TopicConfig) -> dict[str, str]:
    """Return the attributes that are not about this directory only."""
    return {key: text for key, text in config.attributes.items() if key not in {PAUSED, RESCUED_FROM}}


def config_text(config: TopicConfig) -> str:
    """Return the text of a configuration; empty for the default configuration."""
    shared = replace(config, attributes=shared_attributes(config), keep_history=False)
    return "" if shared == TopicConfig() else _encoded(shared)


def config_change(config: TopicConfig, known: str) -> str | None:
    """Return the text of the next config commit, for a volume that knows `known`; None if it needs none."""
    text = config_text(config)
    if text == known or (not text and known == _encoded(TopicConfig())):
        return None
    return text or _encoded(TopicConfig())


def config_of(text: str, key: str) -> TopicConfig:
    """Return the configuration of a text. If the text does not decode, raise `InvalidObject`, which names `key`."""
    if not text:
        return TopicConfig(keep_history=True)
    try:
        value = canonical.decode(text.encode())
        return TopicConfig.from_json({**value, "keep_history": True})
    except (InvalidSetting, KeyError, TypeError, ValueError) as cause:
        raise InvalidObject(key, f"its configuration of the topic is not one: {cause!r}") from None


def _encoded(config: TopicConfig) -> str:
    value = {key: text for key, text in config.to_json().items() if key != "keep_history"}
    return canonical.encode(value).decode()
