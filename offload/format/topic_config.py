"""A topic's configuration as its volume keeps it, in commits of kind config, and back.

It is canonical JSON of what `TopicConfig.to_json` gives, with the attributes (codec, pitr_window_s, triggers); without

    keep_history     every topic with a volume has it
    offload_paused   that is said to one directory, about itself
    rescued_from     the same: which topic's records a branch was made for, and how their seqs changed
    (offload.replication.rescue)

A volume that was never told of one has the default configuration. No I/O.
"""

from __future__ import annotations

from dataclasses import replace

from catalog.errors import InvalidObject
from seglog.errors import InvalidSetting
from seglog.values import canonical
from seglog.values.config import TopicConfig

__all__ = ["PAUSED", "RESCUED_FROM", "config_of", "config_text", "shared_attributes", "told_anew"]

PAUSED = "offload_paused"
"""An attribute: the daemon leaves the topic alone."""

RESCUED_FROM = "rescued_from"
"""An attribute: the id of a topic of this log, and by how much its records have lower seqs here than they had there."""


def shared_attributes(config: TopicConfig) -> dict[str, str]:
    """Those that are not about this directory."""
    return {key: text for key, text in config.attributes.items() if key not in {PAUSED, RESCUED_FROM}}


def config_text(config: TopicConfig) -> str:
    """Empty for the default configuration."""
    told = replace(config, attributes=shared_attributes(config), keep_history=False)
    return "" if told == TopicConfig() else _encoded(told)


def told_anew(config: TopicConfig, known: str) -> str | None:
    """What a volume that knows of `known` has to be told; None if nothing."""
    text = config_text(config)
    if text == known or (not text and known == _encoded(TopicConfig())):
        return None
    return text or _encoded(TopicConfig())


def config_of(text: str, place: str) -> TopicConfig:
    """Raises `InvalidObject`, which names `place`, for what is not a configuration of ours."""
    if not text:
        return TopicConfig(keep_history=True)
    try:
        value = canonical.decode(text.encode())
        return TopicConfig.from_json({**value, "keep_history": True})
    except (InvalidSetting, KeyError, TypeError, ValueError) as cause:
        raise InvalidObject(place, f"its configuration of the topic is not one: {cause!r}") from None


def _encoded(config: TopicConfig) -> str:
    value = {key: told for key, told in config.to_json().items() if key != "keep_history"}
    return canonical.encode(value).decode()
