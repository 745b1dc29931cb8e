from __future__ import annotations

import pytest

from offload.errors import InvalidOption
from offload.spark import stream_options
from offload.spark.options import EARLIEST, STREAM_ONLY, Positions, parse_options
from offload.spark.stream_options import (
    LATEST,
    STREAM_OPTIONS,
    StreamOptions,
    parse_any_options,
    parse_stream_options,
)

READ_ONLY = {"versionAsOf": "7", "timestampAsOf": "1700000000000", "endingSeq": "5", "endingTimestamp": "1700000000000",
             "endingOffsets": "latest", "pinSeconds": "60"}  # fmt: skip


def parsed(**texts: str) -> StreamOptions:
    return parse_stream_options({"path": "file:///x", "topic": "t", **texts})


def test_options_have_their_values_and_defaults():
    plain, given = parsed(), parsed(maxrecordspertrigger="5", maxBytesPerTrigger="2m", headCacheMs="0", tag="eu*")
    assert (plain.max_records, plain.max_bytes, plain.head_cache_ms) == (None, None, 1000)
    assert (given.max_records, given.max_bytes, given.head_cache_ms, given.read.tag) == (5, 2 << 20, 0, "eu*")
    assert parsed(maxOffsetsPerTrigger="5") == parsed(maxRecordsPerTrigger="5")


def test_a_stream_may_begin_with_the_newest_record():
    assert parsed(startingSeq="latest").read.starting == Positions(LATEST)
    assert parsed(startingOffsets='{"t": {"0": -1}}').read.starting.of("t") == LATEST
    found = parsed(startingSeq='{"a": "latest", "b": "earliest", "c": 7}').read.starting
    assert [found.of(topic) for topic in "abcd"] == [LATEST, EARLIEST, 7, None]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("startingSeq", "0"), ("startingSeq", "newest"), ("startingSeq", '{"t": -1}'), ("maxRecordsPerTrigger", "0"),
        ("maxRecordsPerTrigger", ""), ("maxOffsetsPerTrigger", "x"), ("maxBytesPerTrigger", "1.5g"),
        ("maxBytesPerTrigger", ""), ("headCacheMs", "-1"), ("headCacheMs", "1s"), ("columns", "seq,seq"),
    ],
)  # fmt: skip
def test_a_text_that_does_not_fit_is_refused_by_the_options_name(name: str, text: str):
    with pytest.raises(InvalidOption, match=f"option {name}: "):
        parsed(**{name: text})


def test_an_option_that_only_the_other_one_has_is_refused_and_says_so():
    for name, text in READ_ONLY.items():
        with pytest.raises(InvalidOption, match=f"option {name} is only for read; "):
            parsed(**{name: text})
    for name in STREAM_ONLY:
        with pytest.raises(InvalidOption, match=f"option {name} is only for readStream; "):
            parse_options({"path": "p", "topic": "t", name: "5"})
    with pytest.raises(InvalidOption, match="option maxfiles is unknown; the options are branch, columns"):
        parsed(maxfiles="5")
    with pytest.raises(InvalidOption, match="the same as maxRecordsPerTrigger"):
        parsed(maxOffsetsPerTrigger="5", maxRecordsPerTrigger="5")


def test_a_load_takes_what_a_read_or_a_stream_takes_and_no_mixture():
    def load(**texts: str) -> object:
        return parse_any_options({"path": "p", "topic": "t", **texts})

    assert load(endingSeq="5", startingSeq="3") == parse_options(
        {"path": "p", "topic": "t", "endingSeq": "5", "startingSeq": "3"}
    )
    assert load(startingSeq="latest", headCacheMs="5")
    assert load(startingSeq="latest")
    for texts, message in (
        ({"startingSeq": "latest", "endingSeq": "5"}, "startingSeq: 'latest' is not a seq"),
        ({"headCacheMs": "5", "endingSeq": "5"}, "endingSeq is only for read"),
        ({"typo": "5"}, "option typo is unknown"),
    ):
        with pytest.raises(InvalidOption, match=message):
            load(**texts)


def test_the_docstring_has_each_option_that_only_a_stream_has():
    text = stream_options.__doc__ or ""
    assert [name for name in STREAM_OPTIONS if name not in text] == []
