"""Test how the JVM reader asks for many ranges: several of one object in one call, and small reads far ahead."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.offload.spark.http_store import BODY, KEY, Store, read, store
from tests.offload.spark.judge import Judge

__all__ = ["store"]

RANGES = [[0, 1], [1, 3], [100, 500], [4_000, 4_000], [len(BODY) - 1, 1]]

pytestmark = pytest.mark.long  # because all tests of the judge share a JVM of their own


def test_many_ranges_of_one_object_come_in_one_call(judge: Judge, store: Store, tmp_path: Path):
    (tmp_path / "akey").write_bytes(BODY)
    files = {"op": "read", "url": tmp_path.as_uri(), "key": "akey", "environment": {}}
    expected = [BODY[offset : offset + length] for offset, length in RANGES]
    answers = [judge.ask(**files, ranges=RANGES), read(judge, store.url, ranges=RANGES)]
    assert [[base64.b64decode(body) for body in answer["bodies"]] for answer in answers] == [expected, expected]


def test_the_first_range_that_an_object_lacks_is_named(judge: Judge, store: Store, tmp_path: Path):
    (tmp_path / "akey").write_bytes(BODY)
    size = len(BODY)
    ranges = [[5, 10], [size - 20, 30], [size + 50, 10], [size + 90, 10]]
    text = f"it ends at byte {size}, {size + 10} were expected"
    question = {"op": "read", "url": tmp_path.as_uri(), "key": "akey", "environment": {}}
    assert judge.ask(**question, ranges=ranges)["error"] == ["InvalidObject", f"akey: {text}"]
    assert read(judge, store.url, ranges=ranges)["error"] == ["InvalidObject", f"{KEY}: {text}"]
    beyond = judge.ask(**question, ranges=ranges[2:])["error"]
    assert beyond == ["InvalidObject", f"akey: it ends at byte {size + 50}, {size + 60} were expected"]
    absent = judge.ask(**{**question, "key": "other"}, ranges=RANGES)["error"]
    assert absent == ["NoSuchObject", "other is not in the store"]


@pytest.mark.parametrize(
    ("sizes", "begun"),
    [([8 << 20] * 4, 3), ([20 << 20] * 4, 3), ([1 << 20] * 30, 17), ([100] * 40, 17), ([100], 1)],
)
def test_small_reads_run_ahead_in_larger_numbers(judge: Judge, sizes: list[int], begun: int):
    """The first read no longer counts: the caller waits for it."""
    assert judge.ask(op="ahead", bytes=sizes) == {"begun": begun, "results": list(range(len(sizes)))}
