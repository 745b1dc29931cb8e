from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

import seglog.config
from seglog.config import (
    DURABILITIES,
    LogSettings,
    TopicConfig,
    default_toml,
    load_settings,
    read_sections,
    settings_from,
    write_default,
)
from seglog.errors import InvalidSetting


def test_every_setting_is_in_the_docstring_with_its_default_and_range() -> None:
    rows = {
        line.split()[0]: line.split() for line in (seglog.config.__doc__ or "").splitlines() if len(line.split()) == 6
    }
    for item in fields(LogSettings):
        default, low, high = rows[item.name][1], rows[item.name][3], rows[item.name][5]
        assert int(default) == getattr(LogSettings(), item.name)
        for value in (int(low), int(high)):
            LogSettings(**{item.name: value})
        for value in (int(low) - 1, int(high) + 1):
            with pytest.raises(InvalidSetting, match=item.name):
                LogSettings(**{item.name: value})


@pytest.mark.parametrize("value", [True, 1.5, "10", None])
def test_a_value_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(InvalidSetting, match=r"log\.wal_file_bytes"):
        settings_from({"wal_file_bytes": value})


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(InvalidSetting, match=r"log\.wal_files") as caught:
        settings_from({"wal_files": 1})
    assert caught.value.key == "log.wal_files"
    with pytest.raises(InvalidSetting):
        settings_from(3)


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
    shown = default_toml().replace("# segment", "segment").replace("# wal", "wal").replace("# max", "max")
    assert settings_from(tomllib.loads(shown)["log"]) == LogSettings()


def test_a_topic_has_a_known_durability() -> None:
    for name in DURABILITIES:
        assert TopicConfig.from_json(TopicConfig(name, True, {"a": "b"}).to_json()) == TopicConfig(
            name, True, {"a": "b"}
        )


def test_retention_has_known_values() -> None:
    config = TopicConfig(ttl_ms=1, cap_records=2, cap_bytes=3, discard="reject")
    assert TopicConfig.from_json(config.to_json()) == config
    for key in ("ttl_ms", "cap_records", "cap_bytes"):
        for value in (0, -1, True, 1.5, "1"):
            with pytest.raises(InvalidSetting, match=key):
                TopicConfig(**{key: value})  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="none of old, reject"):
        TopicConfig(discard="new")
    for name in ("ephemeral", "safe"):
        with pytest.raises(InvalidSetting):
            TopicConfig(name)
