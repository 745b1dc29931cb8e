from __future__ import annotations

import pytest

from offload.errors import InvalidOption, UnsupportedOption
from offload.spark.options import KNOWN_OPTIONS, ReadOptions, parse_options


def test_names_are_taken_in_any_case():
    assert parse_options({"PATH": "file:///a", "topic": "t", "versionasof": "7"}) == ReadOptions(
        "file:///a", "t", "main", 7
    )


def test_a_topic_may_name_its_branch():
    assert parse_options({"path": "p", "topic": "t@b"}) == parse_options({"path": "p", "topic": "t", "branch": "b"})
    assert parse_options({"path": "p", "topic": "t@b", "branch": "b"}).branch == "b"


def test_an_unknown_option_is_refused_with_the_list_of_known_ones():
    with pytest.raises(UnsupportedOption) as refused:
        parse_options({"path": "p", "topic": "t", "endingseq": "5"})
    assert all(name in str(refused.value) for name in ("endingseq", *KNOWN_OPTIONS))


@pytest.mark.parametrize("missing", ["path", "topic"])
def test_a_missing_option_is_named(missing):
    with pytest.raises(InvalidOption) as refused:
        parse_options({name: "x" for name in ("path", "topic") if name != missing})
    assert refused.value.option == missing


def test_a_tag_is_a_version_and_a_lease_has_its_seconds():
    found = parse_options({"path": "p", "topic": "t", "versionAsOf": "tag:v1", "pinSeconds": "60"})
    assert (found.version, found.tag, found.pin_seconds) == (None, "v1", 60)
    for text in ("", "-1", "1h", "12345678"):
        with pytest.raises(InvalidOption, match="pinSeconds"):
            parse_options({"path": "p", "topic": "t", "pinSeconds": text})


def test_values_of_another_type_or_range_are_refused_by_name():
    for name, value in (
        ("path", 7), ("topic", None), ("branch", b"x"), ("versionAsOf", 5), ("pinSeconds", 60),
        ("versionAsOf", "9223372036854775808"), ("versionAsOf", "tag:"), ("versionAsOf", "-1"), ("pinSeconds", "1.5"),
    ):  # fmt: skip
        with pytest.raises(InvalidOption, match=name):
            parse_options({"path": "file:///x", "topic": "t", name: value})


@pytest.mark.parametrize("text", ["0", "-1", "1.0", "", " 1", "latest", "\u0661", "1" * 21])
def test_a_version_that_is_no_lsn_is_refused(text):
    with pytest.raises(InvalidOption, match="is not an LSN"):
        parse_options({"path": "p", "topic": "t", "versionAsOf": text})
