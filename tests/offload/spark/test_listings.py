"""Test the listings of a catalog, as the planner answers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog import Volumes
from catalog.errors import AccessDenied
from catalog.format.commit import ForkPoint
from catalog.format.keys import Key
from catalog.objects import MemoryStore, ObjectStore
from catalog.objects.wrapped import WrappedStore
from catalog.refs.branch import Branches
from catalog.refs.state_names import Tags
from offload.spark.listings import listed
from offload.spark.options import parse_options
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
    planner = Planner(rows_in_message=1)

    def answered(of: str, **options: str) -> list[list[Any]]:
        wanted = {"path": orders.store.url, "topic": "orders", **options}
        answer, *parts = planner.answers({"call": "listing", "of": of, "options": wanted})
        rows = [list(row) for part in parts for row in part["rows"]]
        assert answer["parts"] == len(parts) == len(rows)
        assert {len(row) for row in rows} <= {len(answer["columns"])}
        return rows

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


class UnorderedStore(MemoryStore):
    """Lists as a directory bucket of S3 does."""

    @property
    def is_ordered(self) -> bool:
        return False

    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        assert not start_after
        return iter([*super().list(prefix)][::-1][:limit])


@pytest.mark.parametrize("kind", [MemoryStore, UnorderedStore])
def test_tenants_are_names_with_topics_below(kind: type[MemoryStore]):
    store = kind()
    names = ("a", "a-b", "a0", "a0b", "globex", "z_9")
    for name in (*names, "refs", "doctor", "Upper", "dot.ted", "a.x"):
        store.put_new(Key(f"{name}/refs/orders/main"), b"")
    for key in ("empty/control", "globex/5rMK/control", "a0", "nested/acme/refs/orders/main"):
        store.put_new(Key(key), b"")
    assert tenants(store) == [*names]


def test_a_request_passes_over_the_ids_of_volumes_that_begin_alike():
    class Counted(MemoryStore):
        lists = 0

        def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
            self.lists += 1
            return super().list(prefix, limit=limit, start_after=start_after)

    store = Counted()
    for number in range(200):
        store.put_new(Key(f"5rMK{number:05}/control"), b"")
    for name in ("5rm", "5rN", "5r", "acme"):
        store.put_new(Key(f"{name}/refs/orders/main"), b"")
    assert tenants(store) == ["5r", "5rm", "acme"]
    assert store.lists < 12


def test_credentials_of_a_tenant_list_no_others():
    class OwnPrefix(WrappedStore):
        def _call(self, method: str, key: str, act: Callable[[], Any]) -> Any:
            if key.startswith("globex/"):
                return act()
            raise AccessDenied("s3://bucket", "AccessDenied")

    with pytest.raises(AccessDenied) as caught:
        tenants(OwnPrefix(MemoryStore()))
    assert caught.value.hint == (
        "the credentials of a tenant list its own prefix alone: name it, as in CATALOG.TENANT.TOPIC"
    )


def tenants(store: ObjectStore) -> list[str]:
    columns, rows = listed("tenants", parse_options({"path": store.url, "topic": "*"}), Volumes(store))
    assert [(column.name, column.type) for column in columns] == [("tenant", "string")]
    return [str(row[0]) for row in rows]
