"""Test the configuration of a topic in commits: a priority travels, and a topic without one changes no byte."""

from __future__ import annotations

from offload.format.topic_config import config_change, config_of, config_text
from seglog import TopicConfig


def test_a_priority_travels_with_the_volume() -> None:
    config = TopicConfig(priority=-100, auto_priority=True, keep_history=True)
    text = config_text(config)
    assert config_of(text, "a commit") == config
    assert config_change(config, text) is None
    back = config_change(TopicConfig(keep_history=True), text)
    assert back is not None
    assert config_of(back, "a commit") == TopicConfig(keep_history=True)


def test_a_topic_without_a_priority_has_the_text_of_before() -> None:
    assert config_text(TopicConfig(keep_history=True)) == ""
    text = config_text(TopicConfig(keep_history=True, ttl_ms=5))
    assert text == (
        '{"attributes":{},"cap_bytes":null,"cap_records":null,"discard":"old","durability":"fsync","ttl_ms":5}'
    )
