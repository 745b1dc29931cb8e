"""Test the listings of a catalog, as the planner answers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.format.commit import ForkPoint
from catalog.refs.branch import Branches
from catalog.refs.state_names import Tags
from offload.spark.planner import Planner
from tests.offload.samples import Sample
from tests.offload.spark.archives import NOW_MS, TopicArchive

NOW = NOW_MS * 1000
List = Callable[..., list[list[Any]]]


@pytest.fixture
def orders(tmp_path: Path) -> TopicArchive:
    """Return a topic with a commit, a tag, a branch, and a deleted branch."""
    orders = TopicArchive((tmp_path / "remote").as_uri())
    orders.add([Sample(b"a")] * 3)
    for branch in ("gone", "trial"):
        TopicArchive(orders.store, "orders", branch, ForkPoint(orders.vid, 1, 2))
    Branches(orders.volumes).delete("orders", "gone", now_ms=NOW_MS)
    Tags(orders.volumes).create("orders", "t", ForkPoint(orders.vid, 1, 2), branch="main", now_ms=NOW_MS, message="why")
    return orders


@pytest.fixture
def listing(orders: TopicArchive) -> Iterator[List]:
    planner = Planner()

    def answered(of: str, **options: str) -> list[list[Any]]:
        wanted = {"path": orders.store.url, "topic": "orders", **options}
        [answer] = planner.answers({"call": "listing", "of": of, "options": wanted})
        assert {len(row) for row in answer["rows"]} <= {len(answer["columns"])}
        return [list(row) for row in answer["rows"]]

    yield answered
    planner.close()


def test_topics_are_those_whose_branch_is_there(listing: List, orders: TopicArchive):
    TopicArchive(orders.store, "events")
    assert listing("topics", topic="*") == [["events"], ["orders"]]
    assert listing("topics", topic="*", branch="trial") == [["orders"]]
    assert listing("topics", topic="*", branch="gone") == []
    assert listing("topics", topic="x*") == []


def test_commits_come_newest_first_and_a_branch_has_what_it_took_of_its_parent(listing: List, orders: TopicArchive):
    size = orders.volumes.snapshot(orders.vid).segments[0].ref.data_length
    volume = str(orders.vid)
    assert listing("history", branch="trial") == [[1, NOW, "offload", 2, 2, size, "test", "", volume]]
    orders.truncate(2)
    assert listing("history") == [
        [2, NOW, "truncate", 1, 0, 0, "test", "", volume],
        [1, NOW, "offload", 3, 3, size, "test", "", volume],
    ]


def test_branches_name_their_parents(listing: List):
    assert [row[:4] for row in listing("branches")] == [["main", None, None, NOW], ["trial", "main", 1, NOW]]


def test_tags_name_their_points(listing: List):
    assert listing("tags") == [["t", "main", 1, 2, NOW, "why"]]


def test_segments_are_those_of_the_branch(listing: List, orders: TopicArchive):
    [view] = orders.volumes.snapshot(orders.vid).segments
    ends = [NOW + 1000, NOW + 2000, view.ref.data_length, str(orders.vid)]
    assert listing("segments") == [[1, str(view.ref.sid), 1, 3, *ends]]
    assert listing("segments", branch="trial") == [[1, str(view.ref.sid), 1, 2, *ends]]
