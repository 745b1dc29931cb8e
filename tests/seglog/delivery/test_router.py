"""Test the value of a router: its record, its pairs, and the graphs that routers may make."""

from __future__ import annotations

import graphlib
import json
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from seglog.base.errors import Conflict
from seglog.delivery.keyed_topic import UnreadableState
from seglog.delivery.router import PAIRS_MAX, Pair, Router, check_graph, decode_router, encode_router
from tests.work import tell

PAIR = Pair(1, 7, 5, 2, 3, 6)
ROUTER = Router("r", "0123456789abcdef", "a", "b", "x-1", "x-2", (PAIR,), "eu*", "o[nx]e", drop_tag=True, passed_over=4)
GRAPHS = 10_000


@pytest.mark.parametrize(
    "router",
    [
        ROUTER,
        replace(ROUTER, tag=None, grep="\udcff", drop_tag=False, drop_node=True, is_paused=True),
        replace(ROUTER, is_deleted=True, pairs=(PAIR, PAIR), cut=(0, 7)),
    ],
)
def test_a_record_says_what_the_router_is(router: Router) -> None:
    assert decode_router(encode_router(router), "r") == router


def test_the_record_has_the_members_that_the_format_lists() -> None:
    assert json.loads(encode_router(ROUTER)) == {
        "version": 1, "router": "r", "id": "0123456789abcdef", "state": "live", "from": "a", "to": "b",
        "from_is": "x-1", "to_is": "x-2", "tag": "eu*", "grep": "o[nx]e", "drop_tag": True, "drop_node": False,
        "passed_over": 4, "cut": None, "pairs": [[1, 7, 5, 2, 3, 6]],
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2}, {"state": "gone"}, {"router": "other"}, {"id": 1}, {"from": None}, {"tag": 1}, {"drop_tag": 0},
        {"passed_over": -1}, {"pairs": []}, {"pairs": [[1, 2]]}, {"pairs": [[1, 2, 3, 4, 5, 2**64]]}, {"pairs": 1},
        {"cut": [1]}, {"cut": [1, "2"]},
    ],
)  # fmt: skip
def test_another_record_is_none_and_names_its_router(change: dict[str, Any]) -> None:
    value = json.dumps({**json.loads(encode_router(ROUTER)), **change}).encode()
    with pytest.raises(UnreadableState) as caught:
        decode_router(value, "r")
    assert caught.value.key == "r"
    for broken in (b"", b"[]", b"{", b"\xff", encode_router(ROUTER)[:-1]):
        with pytest.raises(UnreadableState):
            decode_router(broken, "r")


def test_pairs_are_dense_at_the_end_and_the_first_one_stays() -> None:
    router = ROUTER
    for seq in range(8, 300):
        router = router.at(replace(PAIR, seq=seq))
        assert router.newest.seq == seq
        assert len(router.pairs) <= PAIRS_MAX
        assert router.pairs[0] == PAIR
        assert [pair.seq for pair in router.pairs] == sorted({pair.seq for pair in router.pairs})
    assert [pair.seq for pair in router.pairs[-4:]] == [296, 297, 298, 299]
    assert router.at(replace(router.newest, ts_ms=99)) is router


def test_the_first_real_pair_takes_the_place_of_the_one_that_is_not_settled() -> None:
    assert replace(ROUTER, pairs=(replace(PAIR, to_epoch=0),)).at(PAIR).pairs == (PAIR,)


def test_the_cycles_that_are_refused_are_those_of_graphlib() -> None:
    chance, refused, fans, taken = random.Random(33), 0, 0, 0
    for _ in range(GRAPHS):
        topics = [f"t{number}" for number in range(chance.randint(2, 9))]
        routers: list[Router] = []
        for number in range(chance.randint(1, 14)):
            source, destination = chance.choice(topics), chance.choice(topics)
            edges = [(each.source, each.destination) for each in routers]
            is_fan = destination in {to for _, to in edges}
            is_cycle = _has_cycle([*edges, (source, destination)])
            if not (is_fan or is_cycle):
                check_graph(routers, source, destination)
                taken += 1
                routers.append(replace(ROUTER, name=f"r{number}", source=source, destination=destination))
                continue
            with pytest.raises(Conflict) as caught:
                check_graph(routers, source, destination)
            assert ("router_dest_fan_in" in str(caught.value)) == is_fan
            fans, refused = fans + is_fan, refused + (not is_fan)
            if not is_fan:
                path = str(caught.value).rpartition(": ")[2].split(" -> ")
                assert path[0] == path[-1] == destination
                assert path[-2] == source
                assert {*pairwise(path)} <= {*edges, (source, destination)}
    assert min(refused, fans, taken) > 1_000
    tell(f"{GRAPHS} graphs: {taken} routers taken, {refused} cycles and {fans} second routers refused")


def _has_cycle(edges: list[tuple[str, str]]) -> bool:
    graph: dict[str, set[str]] = {}
    for source, destination in edges:
        graph.setdefault(destination, set()).add(source)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError:
        return True
    return False
