"""Every conformance check can fail. For each check there are stores that break its promise as real stores do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from catalog.errors import (
    AccessDenied,
    CatalogError,
    KeyTaken,
    NoSuchBucket,
    OutcomeUnknown,
    StoreUnreachable,
)
from catalog.format.keys import Key
from catalog.objects import MemoryStore, ObjectInfo, ObjectStore, PartTag
from catalog.objects.conformance import CHECKS, Check, PromiseBroken, Sandbox
from catalog.objects.examination import Examination
from tests.faults.broken_stores import CASES, Broken, ListsLate, Writer
from tests.faults.store import unreachable

PREFIX = "doctor/one/"
BY_NAME = {check.name: check for check in CHECKS}


class ListsUploadsOfWholeKeys(Broken):
    """A store that lists uploads by whole keys only, as MinIO does."""

    def list_uploads(self, prefix: str) -> Iterator[tuple[Key, str]]:
        return (each for each in self.inner.list_uploads(prefix) if each[0] == prefix)


def test_there_is_a_broken_store_for_every_check() -> None:
    assert [name for name in BY_NAME if name not in {name for name, _ in CASES}] == []


@pytest.mark.parametrize(("name", "broken"), CASES, ids=lambda case: case if isinstance(case, str) else case.__name__)
def test_a_check_tells_a_store_that_breaks_what_it_proves(name: str, broken: type[Broken]) -> None:
    store = broken()
    [outcome] = Examination(store, PREFIX, [BY_NAME[name]]).outcomes()
    assert (outcome.state, outcome.check.name) == ("broken", name)
    assert outcome.reason


def test_names_are_words_and_sentences_end() -> None:
    assert len(BY_NAME) == len(CHECKS)
    for check in CHECKS:
        assert check.name.replace("-", "").isalpha()
        assert check.proves.endswith(".")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_works_under_its_own_prefix_and_no_other(check: Check) -> None:
    store, seen = MemoryStore(), set()

    class Watched(Broken):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            seen.add(key)
            return act()

    watched = Watched()
    watched.inner = store
    check.run(Sandbox(watched, PREFIX))
    assert {key for key in seen if not key.startswith(PREFIX)} <= {""}  # a delete of no keys has the key ""


# ---------------------------------------------------------------- a whole examination


def states(store: ObjectStore) -> dict[str, str]:
    return {outcome.check.name: outcome.state for outcome in Examination(store, PREFIX).outcomes()}


def test_a_store_that_keeps_every_promise_is_told_so_and_is_as_empty_as_before() -> None:
    store = MemoryStore()
    store.put_new(Key("refs/orders/main"), b"the user's")
    examination = Examination(store, PREFIX)
    assert {outcome.state for outcome in examination.outcomes()} == {"kept"}
    assert len(list(store.list(PREFIX))) > 20
    assert examination.clean() == ""
    assert list(store.list("")) == ["refs/orders/main"]
    assert list(store.list_uploads("")) == []


def test_what_was_made_goes_also_where_listings_are_wrong() -> None:
    store = ListsLate()
    examination = Examination(store, PREFIX)
    assert "broken" in {outcome.state for outcome in examination.outcomes()}
    assert examination.clean() == ""
    assert list(store.inner.list("")) == []
    assert list(store.inner.list_uploads("")) == []


def test_a_store_that_lists_uploads_of_whole_keys_only_is_told_from_one_that_is_wrong() -> None:
    outcomes = list(Examination(ListsUploadsOfWholeKeys(), PREFIX).outcomes())
    [told] = [outcome for outcome in outcomes if outcome.state != "kept"]
    assert (told.state, told.check.name) == ("skipped", "list-uploads")
    assert "by whole keys only" in told.reason


def test_what_a_role_may_not_do_is_skipped_and_what_stays_is_told() -> None:
    examination = Examination(Writer(), PREFIX)
    outcomes = list(examination.outcomes())
    skipped = {outcome.check.name: outcome.reason for outcome in outcomes if outcome.state == "skipped"}
    assert skipped == {
        "swap-of-an-absent-key": "this role may not delete",
        "list-uploads": "this role may not list uploads",
        "delete": "this role may not delete",
        "delete-many": "this role may not delete",
    }
    assert {outcome.state for outcome in outcomes} == {"kept", "skipped"}
    assert "an old token" in examination.clean()


class KeepsNoChecksums(Broken):
    def head(self, key: Key) -> ObjectInfo:
        found = self.inner.head(key)
        return ObjectInfo(found.size, found.metadata)

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes) -> PartTag:
        tag = super().put_part(key, upload_id, number, body)
        return PartTag(tag.number, tag.etag, tag.size)


def test_a_store_without_checksums_is_not_asked_for_them() -> None:
    assert {name for name, state in states(KeepsNoChecksums()).items() if state != "kept"} == {
        "checksum",
        "wrong-whole",
    }
    assert states(KeepsNoChecksums())["checksum"] == "skipped"


@pytest.mark.parametrize(
    "error",
    [unreachable, lambda _: AccessDenied("s3://b", "no"), lambda _: NoSuchBucket("b")],
    ids=["unreachable", "denied", "no-bucket"],
)
def test_a_store_that_refuses_everything_is_asked_by_one_check(error: Callable[[str], CatalogError]) -> None:
    class Refuses(Broken):
        calls = 0

        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            self.calls += 1
            raise error(key)

    store = Refuses()
    examination = Examination(store, PREFIX)
    first, *others = examination.outcomes()
    assert first.state == "broken"
    assert first.reason == str(error("" if error is not unreachable else f"{PREFIX}read-after-write/one"))
    assert {outcome.state for outcome in others} == {"skipped"}
    assert store.calls == 1
    assert examination.clean() == ""  # nothing was made


def test_racers_whose_outcome_is_unknown_are_no_proof_of_anything() -> None:
    class Conflicts(Broken):
        """A store that answers 409 to every racer, including the winner."""

        def put_new(self, key: Key, body: bytes) -> None:
            try:
                super().put_new(key, body)
            except KeyTaken:
                raise OutcomeUnknown(key, "409") from None
            if "create-race/" in key:
                raise OutcomeUnknown(key, "409")

    BY_NAME["create-race"].run(Sandbox(Conflicts(), PREFIX))

    class Loses(Conflicts):
        def get(self, key: Key) -> bytes:
            return b"of nobody"

    with pytest.raises(PromiseBroken, match="of nobody"):
        BY_NAME["create-race"].run(Sandbox(Loses(), PREFIX))


def test_trouble_in_the_middle_is_told_and_the_rest_is_tried() -> None:
    class RangesFail(Broken):
        def get_range(self, key: Key, start: int, length: int) -> bytes:
            raise StoreUnreachable("s3://b", "503")

    found = states(RangesFail())
    assert [name for name, state in found.items() if state == "broken"] == ["absence", "range", "multipart"]
    assert "skipped" not in found.values()
