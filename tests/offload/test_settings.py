from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import offload
import seglog
from catalog.objects.memory import MemoryStore
from offload.settings import (
    SETTINGS,
    CatalogSettings,
    ColdSettings,
    OffloadSettings,
    ServeSettings,
    Settings,
    default_file,
    read_settings,
)
from seglog import LogSettings, load_settings
from seglog.errors import InvalidSetting
from seglog.values.config import settings_of


def load(tmp_path: Path, body: str, **variables: str) -> tuple[str | None, OffloadSettings]:
    path = tmp_path / "seglog.toml"
    path.write_text(body)
    found = read_settings(path, variables)
    return found.url, found.offload


def test_every_setting_takes_its_range_and_nothing_beyond() -> None:
    for key, setting in settings_of(OffloadSettings).items():
        if setting.is_text:
            continue
        good: list[object] = [*setting.choices] or [
            setting.low,
            setting.low + 1 if setting.high is None else setting.high,
        ]
        bad: list[object] = ["lz4"] if setting.choices else [setting.low - 1]
        if setting.high is not None:
            bad.append(setting.high + 1)
        for value in good:
            assert getattr(OffloadSettings(**{key: value}), key) == value  # type: ignore[arg-type]
        for value in bad:
            with pytest.raises(InvalidSetting) as caught:
                OffloadSettings(**{key: value})  # type: ignore[arg-type]
            assert caught.value.key == f"offload.{key}"


def test_a_kms_key_is_for_kms_only() -> None:
    assert OffloadSettings(sse="aws:kms", sse_kms_key_id="k").sse_kms_key_id == "k"
    with pytest.raises(InvalidSetting, match="sse_kms_key_id"):
        OffloadSettings(sse="AES256", sse_kms_key_id="k")


def test_topics_with_laminarmqs_routes_have_a_port_each() -> None:
    assert ServeSettings().laminarmq_ports() == {}
    assert ServeSettings(laminarmq="a:3000, b@try:0,").laminarmq_ports() == {"a": 3000, "b@try": 0}
    for wrong in ("a", "a:", ":3000", "a:x", "a:-1", "a:65536", "a:1,a:2", "a/b:1", "a:\u0663", "a:003000"):
        with pytest.raises(InvalidSetting, match=r"serve\.laminarmq"):
            ServeSettings(laminarmq=wrong)
    with pytest.raises(InvalidSetting, match=r"serve\.laminarmq: needs an address"):
        ServeSettings(laminarmq="a:3000", host="")


def test_a_file_may_be_missing_or_empty(tmp_path: Path) -> None:
    missing = read_settings(tmp_path / "missing")
    assert (missing.url, missing.offload) == (None, OffloadSettings())
    assert load(tmp_path, "") == (None, OffloadSettings())


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    body = '[remote]\nurl = "file:///a"\n[offload]\nzstd_level = 9\nconcurrency = 2\n'
    variables = {"SEGLOG_OFFLOAD_CONCURRENCY": "8", "SEGLOG_LOG_WAL_FILE_BYTES": "never looked at here"}
    assert load(tmp_path, body, **variables) == ("file:///a", OffloadSettings(zstd_level=9, concurrency=8))


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ("[offlaod]\n", "offlaod"),
        ("offload = 1\n", "offload"),
        ("remote = 'file:///a'\n", "remote"),
        ("[remote]\nuri = 'file:///a'\n", "remote.uri"),
        ("[remote]\nurl = 1\n", "remote.url"),
        ("[offload]\nblocksize = 1\n", "offload.blocksize"),
        ("[offload]\nblock_size = 1\n", "offload.block_size"),
        ("[offload]\ncodec = 'lz4'\n", "offload.codec"),
        ("[cold]\ncache = 1\n", "cold.cache"),
        ("[cold]\ncache_dir = '\\u0000'\n".replace("'", '"'), "cold.cache_dir"),
        ("[cold]\ncache_dir = 1\n", "cold.cache_dir"),
        ("[cold]\nget_attempts = 0\n", "cold.get_attempts"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, body: str, key: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        load(tmp_path, body), read_settings(tmp_path / "seglog.toml").cold
    assert caught.value.key == key


def test_settings_of_cold_reads_come_from_the_same_places(tmp_path: Path) -> None:
    path = tmp_path / "seglog.toml"
    assert read_settings(path).cold == ColdSettings()
    path.write_text("[cold]\ncache_bytes = 0\ncache_dir = '/fast'\n")
    assert read_settings(path, {"SEGLOG_COLD_CONNECTIONS": "3"}).cold == ColdSettings(
        cache_bytes=0, cache_dir="/fast", connections=3
    )
    with pytest.raises(InvalidSetting, match="SEGLOG_COLD_CACHE"):
        _ = read_settings(path, {"SEGLOG_COLD_CACHE": "3"}).cold


def test_the_file_of_init_has_every_key_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "seglog.toml"
    path.write_text(default_file("s3://bucket/acme"))
    found = read_settings(path)
    assert (found.url, found.offload) == ("s3://bucket/acme", OffloadSettings())
    assert load_settings(path) == found.log == LogSettings()
    assert (found.cold, found.catalog, found.serve) == (ColdSettings(), CatalogSettings(), ServeSettings())
    lines = [line[2:] if line.startswith("# ") and " = " in line else line for line in default_file().splitlines()]
    shown = tomllib.loads("\n".join(lines))
    assert {(s.section, s.key): s.default for s in SETTINGS} == {
        (section, key): value for section, keys in shown.items() if section != "remote" for key, value in keys.items()
    }


def test_a_mistake_in_one_section_stops_only_its_part() -> None:
    settings = Settings({"serve": {"port": "x"}}, {})
    assert settings.log == LogSettings()
    assert settings.offload == OffloadSettings()
    with pytest.raises(InvalidSetting, match=r"serve\.port"):
        _ = settings.serve


def test_the_log_ignores_the_other_sections_and_every_other_part_refuses_an_unknown_one() -> None:
    settings = Settings({"offlaod": {}}, {})
    assert settings.log == LogSettings()
    for part in ("url", "offload", "cold", "catalog", "serve"):
        with pytest.raises(InvalidSetting, match="offlaod: is unknown; the sections are log, remote, offload"):
            getattr(settings, part)


def test_an_archive_refuses_a_wrong_file_also_if_the_caller_gives_the_sections(tmp_path: Path) -> None:
    parts = (OffloadSettings(), ColdSettings(), CatalogSettings())
    for body in ("[offload]\nnonsense = 1\n", "[nonsense]\n"):
        with seglog.open(tmp_path / "data") as log:
            (tmp_path / "data" / "seglog.toml").write_text(body)
            with pytest.raises(InvalidSetting, match="nonsense"):
                offload.attach(
                    log,
                    store=MemoryStore(),
                    settings=read_settings(log.path / "seglog.toml").with_parts(*parts),
                )
        (tmp_path / "data" / "seglog.toml").unlink()
