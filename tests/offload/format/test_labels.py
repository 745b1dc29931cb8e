from __future__ import annotations

import pytest

from catalog.format.commit import Codec
from offload.format.labels import object_metadata


@pytest.mark.parametrize("role", ["data", "index"])
def test_pulsars_format_version_is_on_codec_none_and_never_on_zstd(role):
    assert object_metadata(role, "t", 1, 9, Codec.NONE)["s3managedledgeroffloaderformatversion"] == "1"
    assert "s3managedledgeroffloaderformatversion" not in object_metadata(role, "t", 1, 9, Codec.ZSTD)


@pytest.mark.parametrize("codec", Codec)
def test_all_objects_say_what_they_are_in_lower_case_names_and_ascii(codec):
    found = object_metadata("data", "orders@half", 1, 99, codec)
    assert {"role", "seglog-format", "seglog-topic", "seglog-first-seq", "seglog-last-seq", "seglog-version"} <= set(
        found
    )
    assert (found["role"], found["seglog-topic"], found["seglog-last-seq"]) == ("data", "orders@half", "99")
    assert all(name == name.lower() and value.isascii() for name, value in found.items())
