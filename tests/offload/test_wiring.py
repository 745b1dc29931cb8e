"""Test the URLs of remotes in directories: the path behind each, and that it lies apart from the data directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import offload
import seglog
from catalog.errors import AccessDenied, InvalidRemote
from catalog.format.keys import Key
from catalog.objects.s3_credentials import FoundCredentials
from offload.wiring import check_remote_apart, open_store


def within(tmp_path: Path) -> Path:
    return tmp_path / "data/remote"


def the_same(tmp_path: Path) -> Path:
    return tmp_path / "data"


def around(tmp_path: Path) -> Path:
    return tmp_path


def linked(tmp_path: Path) -> Path:
    (tmp_path / "remote").symlink_to(tmp_path / "data/topics")
    return tmp_path / "remote"


@pytest.mark.parametrize("place", [within, the_same, around, linked])
def test_a_remote_in_or_around_the_data_directory_is_refused(tmp_path: Path, place: object) -> None:
    assert callable(place)
    with seglog.open(tmp_path / "data") as log:
        log.topic("t").append([b"x"])
        url = place(tmp_path).as_uri()
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(InvalidRemote, match="data directory") as caught:
            offload.attach(log, url)
        assert caught.value.exit_code == 2
        assert sorted(tmp_path.rglob("*")) == before
        with offload.attach(log, (tmp_path / "beside").as_uri()) as archive:
            archive.offload("t")


def test_an_escaped_blank_is_a_blank(tmp_path: Path) -> None:
    with pytest.raises(InvalidRemote):
        check_remote_apart((tmp_path / "my data/remote").as_uri(), tmp_path / "my data")


@pytest.mark.parametrize(
    "url", ["s3://bucket/te\nnant", "s3://bucket/acme\t", " s3://bucket/acme\n", "s3://bucket/acme?", "s3://[/acme"]
)
def test_a_url_that_a_parser_would_read_as_another_is_refused(url: str) -> None:
    """`urlsplit` drops tabs, line feeds and an empty query, so the store would belong to another tenant."""
    with pytest.raises(InvalidRemote):
        open_store(url)


def test_a_bucket_is_in_no_directory(tmp_path: Path) -> None:
    check_remote_apart(f"s3://bucket{tmp_path}/data/remote", tmp_path / "data")


def test_a_directory_is_the_same_by_whatever_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bind mount has a path of its own that no link explains. Here an unresolved link stands for the mount."""
    monkeypatch.setattr(os.path, "realpath", os.fspath)
    (tmp_path / "data").mkdir()
    (tmp_path / "mount").symlink_to(tmp_path / "data")
    with pytest.raises(InvalidRemote):
        check_remote_apart((tmp_path / "mount/remote").as_uri(), tmp_path / "data")


def test_a_path_that_is_not_utf8_has_a_url(tmp_path: Path) -> None:
    place = tmp_path / "remote\udcff"
    store = open_store(place.as_uri())
    store.put_new(Key("a"), b"x")
    assert (place / "a").read_bytes() == b"x"
    assert store.url == place.as_uri()
    with pytest.raises(InvalidRemote, match="its byte 0xff as %FF"):
        open_store(f"file://{place}")


def test_a_store_with_a_source_asks_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Source:
        def current(self, refused: str = "") -> FoundCredentials:
            asked.append(refused)
            raise AccessDenied("STS", "no role")

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    store = open_store("s3://bucket/acme", credentials=Source())
    for ask in (lambda: store.put_new(Key("a"), b""), lambda: store.get(Key("a"))):
        with pytest.raises(AccessDenied, match="no role"):
            ask()
    store.close()
    assert asked
