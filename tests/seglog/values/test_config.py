from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from seglog.errors import InvalidSetting
from seglog.files.directory import default_toml, load_settings, read_sections, write_default
from seglog.values.config import DURABILITIES, LogSettings, TopicConfig, settings_of


def test_every_setting_takes_its_range_and_nothing_beyond() -> None:
    for key, setting in settings_of(LogSettings).items():
        assert getattr(LogSettings(), key) == setting.default
        if setting.is_path:
            assert getattr(LogSettings(**{key: "/any where/ü"}), key) == "/any where/ü"
            continue
        if setting.is_switch:
            assert getattr(LogSettings(**{key: True}), key) is True
            with pytest.raises(InvalidSetting, match=key) as caught:
                LogSettings(**{key: 1})
            assert setting.allowed in str(caught.value)
            continue
        assert setting.high is not None
        for value in (setting.low, setting.high):
            assert getattr(LogSettings(**{key: value}), key) == value
        for value in (setting.low - 1, setting.high + 1):
            with pytest.raises(InvalidSetting, match=key) as caught:
                LogSettings(**{key: value})
            assert setting.allowed in str(caught.value)


def load(tmp_path: Path, body: str) -> LogSettings:
    path = tmp_path / "seglog.toml"
    path.write_text(body)
    return load_settings(path)


@pytest.mark.parametrize("value", ["true", "1.5", '"10"', "[1]"])
def test_a_value_of_another_type_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(InvalidSetting, match=r"log\.wal_file_bytes"):
        load(tmp_path, f"[log]\nwal_file_bytes = {value}\n")


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"log\.wal_files") as caught:
        load(tmp_path, "[log]\nwal_files = 1\n")
    assert caught.value.key == "log.wal_files"
    with pytest.raises(InvalidSetting, match="section"):
        load(tmp_path, "log = 3\n")


def test_other_sections_are_left_to_others(tmp_path: Path) -> None:
    path = tmp_path / "seglog.toml"
    assert read_sections(path) == {}
    assert load_settings(path) == LogSettings()
    path.write_text('[log]\nsegment_max_events = 5\n[remote]\nurl = "file:///x"\nanything = 1\n')
    assert load_settings(path) == LogSettings(segment_max_events=5)
    assert read_sections(path)["remote"] == {"url": "file:///x", "anything": 1}


@pytest.mark.parametrize("body", [b"[log", b"\xff", b"log = 1"])
def test_a_file_that_is_not_toml_is_told(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "seglog.toml"
    path.write_bytes(body)
    with pytest.raises(InvalidSetting):
        load_settings(path)


def test_the_default_file_says_the_defaults_and_the_remote(tmp_path: Path) -> None:
    write_default(tmp_path)
    assert load_settings(tmp_path / "seglog.toml") == LogSettings()
    assert read_sections(tmp_path / "seglog.toml")["remote"] == {}
    write_default(tmp_path, 's3://b/"quoted"\\')
    assert read_sections(tmp_path / "seglog.toml")["remote"] == {"url": 's3://b/"quoted"\\'}
    shown = tomllib.loads(re.sub(r"^# (\w+ = [\d\"ft])", r"\1", default_toml(), flags=re.MULTILINE))["log"]
    assert shown == {key: setting.default for key, setting in settings_of(LogSettings).items()}


def test_a_topic_has_a_known_durability() -> None:
    for name in DURABILITIES:
        config = TopicConfig(name, name != "ephemeral", {"a": "b"})
        assert TopicConfig.from_json(config.to_json()) == config
    with pytest.raises(InvalidSetting, match="none of fsync, disk, memory, ephemeral"):
        TopicConfig("safe")


def test_what_is_never_written_has_no_history() -> None:
    with pytest.raises(InvalidSetting, match="use memory, or another topic for them"):
        TopicConfig("ephemeral", keep_history=True)


def test_retention_has_known_values() -> None:
    config = TopicConfig(ttl_ms=1, cap_records=2, cap_bytes=3, discard="reject")
    assert TopicConfig.from_json(config.to_json()) == config
    for key in ("ttl_ms", "cap_records", "cap_bytes"):
        for value in (0, -1, True, 1.5, "1"):
            with pytest.raises(InvalidSetting, match=key):
                TopicConfig(**{key: value})  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="none of old, reject"):
        TopicConfig(discard="new")


def test_a_topic_has_a_priority_that_its_age_can_make_up_for() -> None:
    for priority in (-250, -1, 0, 1000):
        config = TopicConfig(priority=priority, auto_priority=True)
        assert TopicConfig.from_json(config.to_json()) == config
    for value in (-251, 1001, 0.5, True, "1", None):
        with pytest.raises(InvalidSetting, match="priority"):
            TopicConfig(priority=value)  # type: ignore[arg-type]
    for value in (1, "on", None):
        with pytest.raises(InvalidSetting, match="auto_priority"):
            TopicConfig(auto_priority=value)  # type: ignore[arg-type]


def test_a_topic_without_a_priority_is_written_as_before_and_one_of_before_is_read() -> None:
    keys = {"attributes", "cap_bytes", "cap_records", "discard", "durability", "keep_history", "ttl_ms"}
    assert TopicConfig().to_json().keys() == keys
    assert TopicConfig.from_json(TopicConfig().to_json()) == TopicConfig()
    assert TopicConfig(priority=5).to_json().keys() == {*keys, "priority"}
    with pytest.raises(InvalidSetting):
        TopicConfig.from_json({**TopicConfig().to_json(), "priority": "high"})
