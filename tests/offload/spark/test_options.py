from __future__ import annotations

import pytest

from offload.errors import InvalidOption
from offload.spark.options import (
    EARLIEST,
    KNOWN_OPTIONS,
    Positions,
    ReadOptions,
    TopicPattern,
    Verify,
    parse_options,
)


def test_names_are_taken_in_any_case():
    assert parse_options({"PATH": "file:///a", "topic": "t", "versionasof": "7"}) == ReadOptions(
        "file:///a", (TopicPattern("t", "main"),), 7
    )


def test_a_topic_may_name_its_branch():
    assert parse_options({"path": "p", "topic": "t@b"}) == parse_options({"path": "p", "topic": "t", "branch": "b"})
    assert parse_options({"path": "p", "topic": "t@b", "branch": "b"}).topics == (TopicPattern("t", "b"),)


def test_an_unknown_option_is_refused_with_the_list_of_known_ones():
    with pytest.raises(InvalidOption) as refused:
        parse_options({"path": "p", "topic": "t", "endingsec": "5"})
    assert all(name in str(refused.value) for name in ("endingsec", *KNOWN_OPTIONS))


def test_what_spark_adds_to_the_options_of_a_table_is_passed_over_and_refused_elsewhere():
    options = {"path": "p", "topic": "t"}
    added = {"owner": "me", "location": "p", "external": "true", "option.topic": "t"}
    assert parse_options({**options, **added, "provider": "seglog"}) == parse_options(options)
    for refused in ({**options, **added}, {**options, "provider": "seglog", "endingsec": "5"}):
        with pytest.raises(InvalidOption):
            parse_options(refused)


@pytest.mark.parametrize("missing", ["path", "topic"])
def test_a_missing_option_is_named(missing):
    with pytest.raises(InvalidOption) as refused:
        parse_options({name: "x" for name in ("path", "topic") if name != missing})
    assert refused.value.option == missing


def test_a_tag_is_a_version_and_a_lease_has_its_seconds():
    found = parse_options({"path": "p", "topic": "t", "versionAsOf": "tag:v1", "pinSeconds": "60"})
    assert (found.version, found.tag_name, found.pin_seconds) == (None, "v1", 60)
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


def parsed(**texts: str) -> ReadOptions:
    return parse_options({"path": "file:///x", **({} if "subscribe" in texts else {"topic": "t"}), **texts})


def test_topics_are_one_a_list_or_a_glob():
    assert parsed(topic="a, b@x,c*").topics == (TopicPattern("a"), TopicPattern("b", "x"), TopicPattern("c*"))
    assert parsed(topic="a,b", branch="x").topics == (TopicPattern("a", "x"), TopicPattern("b", "x"))
    assert parsed(subscribe="a,b") == parsed(topic="a,b")
    assert [parsed(topic=text).is_one_topic for text in ("a", "a,a", "a,b", "a*", "[ab]", "a?")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    for text in (",", "a,", "@b", "a@x,a@y"):
        with pytest.raises(InvalidOption, match="topic"):
            parsed(topic=text)


def test_positions_are_seqs_words_or_json_by_topic():
    assert parsed(startingSeq="5", endingSeq="9").starting == Positions(5)
    assert parsed(startingSeq="earliest", endingSeq="latest").starting == Positions(EARLIEST)
    assert parsed(endingSeq="latest").ending == Positions()
    found = parsed(startingSeq='{"a": 3, "b": "earliest"}', endingSeq='{"a": "latest", "b": 7}')
    assert [found.starting.of(topic) for topic in "abc"] == [3, EARLIEST, None]
    assert [found.ending.of(topic) for topic in "abc"] == [None, 7, None]


def test_kafkas_offsets_are_seqs_and_its_end_is_exclusive():
    found = parsed(startingOffsets='{"a": {"0": 3}, "b": {"0": -2}}', endingOffsets='{"a": {"0": 10}, "b": {"0": -1}}')
    assert found.starting == Positions(None, {"a": 3, "b": EARLIEST})
    assert found.ending == Positions(None, {"a": 9, "b": None})
    assert parsed(startingOffsets="earliest", endingOffsets="latest") == parsed(startingSeq="earliest")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("startingSeq", "0"), ("startingSeq", "-1"), ("startingSeq", "latest"), ("startingSeq", "x"),
        ("startingSeq", "{"), ("startingSeq", '{"t": "7"}'), ("startingSeq", '{"t": true}'), ("startingSeq", "1.0"),
        ("startingSeq", "9223372036854775808"), ("endingSeq", "earliest"), ("endingSeq", "0"), ("endingSeq", ""),
        ("startingOffsets", "latest"), ("startingOffsets", "5"), ("startingOffsets", '{"t": 5}'),
        ("startingOffsets", '{"t": {"0": 5, "1": 5}}'), ("startingOffsets", '{"t": {"0": 0}}'),
        ("endingOffsets", "earliest"), ("endingOffsets", '{"t": {"0": -2}}'), ("endingOffsets", '{"t": {"0": -5}}'),
        ("startingTimestamp", "2026-11-22T09:30:00"), ("endingTimestamp", "yesterday"), ("timestampAsOf", "seq:5"),
        ("timestampAsOf", "tag:v1"), ("timestampAsOf", ""), ("includeMetadata", "yes"), ("failOnDataLoss", "1"),
        ("verify", "all"), ("reader", "scala"), ("maxPartitionBytes", "0"), ("maxPartitionBytes", "1.5g"),
        ("maxPartitionBytes", "-1"), ("minPartitions", "0"), ("minPartitions", "x"), ("columns", "seq,seq"),
    ],
)  # fmt: skip
def test_a_text_that_does_not_fit_is_refused_by_the_options_name(name: str, text: str):
    with pytest.raises(InvalidOption, match=f"option {name}: "):
        parsed(**{name: text})


def test_two_options_that_mean_the_same_or_exclude_each_other_are_refused():
    with pytest.raises(InvalidOption, match="startingOffsets: it means the same as startingSeq"):
        parsed(startingSeq="5", startingOffsets="earliest")
    with pytest.raises(InvalidOption, match="subscribe"):
        parse_options({"path": "p", "topic": "t", "subscribe": "t"})
    with pytest.raises(InvalidOption, match="versionAsOf is given, too"):
        parsed(versionAsOf="5", timestampAsOf="2 hours ago")


def test_an_lsn_is_a_version_of_one_topic_only():
    for topic in ("a,b", "a*"):
        with pytest.raises(InvalidOption, match="an LSN is a version of one topic"):
            parsed(topic=topic, versionAsOf="5")
        assert parsed(topic=topic, versionAsOf="tag:v1").tag_name == "v1"


def test_every_other_option_has_its_value_and_its_default():
    plain, given = (
        parsed(),
        parsed(
            columns="seq, value", includeMetadata="TRUE", failOnDataLoss="false", verify="Chunk", reader="python",
            maxPartitionBytes="1g", minPartitions="7", tag="eu*", startingTimestamp="1700000000000",
        ),
    )  # fmt: skip
    found = [
        (each.columns, each.include_metadata, each.fail_on_data_loss, each.verify, each.reader)
        for each in (plain, given)
    ]
    assert found == [(None, False, True, None, None), (("seq", "value"), True, False, Verify.CHUNK, "python")]
    assert (plain.max_task_bytes, plain.min_tasks, plain.tag, plain.starting_time) == (128 << 20, 1, None, None)
    assert (given.max_task_bytes, given.min_tasks, given.tag) == (1 << 30, 7, "eu*")
    assert given.starting_time == "1700000000000"


@pytest.mark.parametrize("name", ["assign", "subscribePattern", "maxOffsetsPerTrigger", "readChangeData", "pushdown"])
def test_names_of_kafka_and_delta_that_mean_something_else_are_refused(name: str):
    with pytest.raises(InvalidOption, match=name):
        parsed(**{name: "x"})


def test_the_docstring_has_a_row_for_each_option():
    from offload.spark import options

    rows = {
        line.split()[0] for line in (options.__doc__ or "").splitlines() if line.startswith("    ") and line.split()
    }
    assert set(KNOWN_OPTIONS) <= rows
