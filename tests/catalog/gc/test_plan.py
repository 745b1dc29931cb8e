"""Plans of GC as objects: golden files, damage at every byte, and a GC run that stalls."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.errors import FormatUnsupported, InvalidObject
from catalog.format.keys import page_key, plan_key
from catalog.gc import plan as gc_plan
from catalog.gc.plan import (
    Garbage,
    Plan,
    PlanWriter,
    decode_page,
    decode_plan,
    encode_page,
    encode_plan,
    pages_of,
    plans,
    remove_plan,
)
from catalog.objects import MemoryStore
from catalog.objects.wrapped import WrappedStore
from tests.catalog.samples import START_MS, sid, vid

GOLDEN = Path(__file__).parents[2] / "golden"
PLAN = Plan(START_MS, START_MS + 5, 2, 10_001)
PAGE = [
    Garbage(
        vid(1),
        [7, 6, 1],
        [(sid(1), 5_000), (sid(2), 0)],
        [sid(3)],
        [(6, bytes(range(32)))],
        [vid(9)],
        ["0123456789abcdef"],
        closes=True,
    ),
    Garbage(vid(2), raises=True, first_lsn=8),
]
NONCE = bytes(range(16))


@pytest.mark.parametrize(
    ("name", "body"), [("gc_plan", encode_plan(PLAN)), ("gc_page", encode_page(PAGE, START_MS, NONCE))]
)
def test_the_format_is_the_one_of_the_golden_file(name: str, body: bytes) -> None:
    assert body == (GOLDEN / f"catalog_{name}.bin").read_bytes()


def test_what_is_written_is_read() -> None:
    assert decode_plan(encode_plan(PLAN), PLAN.number) == PLAN
    assert decode_page(encode_page(PAGE, START_MS, NONCE), "page") == (PAGE, START_MS)
    assert [len(each) for each in PAGE] == [10, 1]


def test_damage_is_found_at_every_byte_and_length() -> None:
    for body, decode in (
        (encode_plan(PLAN), lambda found: decode_plan(found, 1)),
        (encode_page(PAGE, START_MS, NONCE), lambda found: decode_page(found, "page")),
    ):
        for at in range(len(body)):
            for damaged in (body[:at], body[:at] + bytes([body[at] ^ 4]) + body[at + 1 :]):
                with pytest.raises((InvalidObject, FormatUnsupported)):
                    decode(damaged)  # type: ignore[operator]


def test_two_runs_of_one_millisecond_write_two_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_plan, "PAGE_OBJECTS", 2)
    store = MemoryStore()
    writers = [PlanWriter(store, START_MS) for _ in range(2)]
    for lsn in range(5):
        for number, writer in enumerate(writers):
            writer.of(vid(number)).lsns.append(lsn)
            writer.added(START_MS)
    written = [writer.close(START_MS) for writer in writers]
    found = plans(store)
    assert sorted(plan.number for plan in found) == [START_MS, START_MS + 1]
    assert found == [written[1], written[0]]
    for number, plan in enumerate(reversed(found)):
        garbage = [each for page in pages_of(store, plan) for each in page]
        assert {each.vid for each in garbage} == {vid(number)}
        assert [lsn for each in garbage for lsn in each.lsns] == list(range(5))
        remove_plan(store, plan.number)
    assert [*store.list("")] == []


def test_a_plan_without_anything_in_it_is_not_written() -> None:
    store = MemoryStore()
    assert PlanWriter(store, START_MS).close(START_MS) is None
    assert [*store.list("")] == []


def test_a_plan_is_put_after_its_pages_and_goes_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_plan, "PAGE_OBJECTS", 2)
    steps: list[tuple[str, str]] = []

    class Noting(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            steps.append((method, key))
            return act()

    store = Noting(MemoryStore())
    writer = PlanWriter(store, START_MS)
    for lsn in range(5):
        writer.of(vid(1)).lsns.append(lsn)
        writer.added(START_MS)
    plan = writer.close(START_MS)
    assert plan is not None
    keys = [*(page_key(START_MS, page) for page in range(3)), plan_key(START_MS)]
    assert steps == [("put_new", key) for key in keys]
    steps.clear()
    remove_plan(store, plan.number)
    assert steps[0] == ("delete", plan_key(START_MS))
    assert [*store.list("")] == []


def test_a_page_that_another_run_put_into_the_middle_of_a_plan_ends_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_plan, "PAGE_OBJECTS", 1)
    store = MemoryStore()
    store.put_new(page_key(START_MS, 1), encode_page(PAGE, START_MS, NONCE))
    writer = PlanWriter(store, START_MS)
    writer.of(vid(1)).lsns.append(1)
    writer.added(START_MS)
    writer.of(vid(1)).lsns.append(2)
    with pytest.raises(InvalidObject, match="another run writes this plan"):
        writer.added(START_MS)


def test_pages_without_a_plan_are_as_old_as_they_say_and_those_that_do_not_decode_older() -> None:
    store = MemoryStore()
    store.put_new(page_key(7, 0), encode_page(PAGE, START_MS, NONCE))
    store.put_new(page_key(6, 0), b"damaged")
    assert [(plan.number, plan.written_at_ms, plan.is_whole) for plan in plans(store)] == [
        (7, START_MS, False),
        (6, 0, False),
    ]
