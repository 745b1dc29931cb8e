"""Test the rests: a topic is looked at again after a change, in time, and when the clock goes back."""

from __future__ import annotations

from pathlib import Path

import seglog
from offload.daemon.background.offloads import Rest, Rests, Seals


def test_a_rest_lasts_until_a_change_its_time_or_a_clock_that_goes_back() -> None:
    rest = Rest((1, 2), since_ms=1_000, until_ms=2_000)
    assert rest.lasts((1, 2), 1_000)
    assert rest.lasts((1, 2), 1_999)
    assert not rest.lasts((1, 3), 1_500)
    assert not rest.lasts((1, 2), 2_000)
    assert not rest.lasts((1, 2), 999)
    assert Rest((1,), 1_000, None).lasts((1,), 10**15)


def test_a_new_condition_ends_all_rests_and_a_topic_that_went_takes_its_rest_along() -> None:
    rests = Rests()
    rests.begin_pass({"a", "b"}, "fine")
    rests.put("a", Rest((1,), 0, None))
    rests.begin_pass({"a", "b"}, "fine")
    assert rests.lasts("a", (1,), 5)
    assert not rests.lasts("b", (1,), 5)
    rests.begin_pass(set(), "fine")
    assert not rests.lasts("a", (1,), 5)
    rests.put("a", Rest((1,), 0, None))
    rests.begin_pass({"a", "b"}, "full")
    assert not rests.lasts("a", (1,), 5)


def test_one_seal_serves_the_topics_that_wait_and_is_not_repeated(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "d") as log:
        seals = Seals()
        for name in ("a", "b", "c"):
            log.topic(name).append([b"x"])
        for name in ("a", "b", "gone"):
            seals.want(name)
        seals.seal(log, "b")
        assert [log.topic(name).inner.sealed_seq for name in ("a", "b", "c")] == [1, 1, 0]
        log.topic("a").append([b"y"])
        seals.seal(log, "a")
        assert log.topic("a").inner.sealed_seq == 1
        seals.want("a")
        seals.seal(log, "a")
        assert log.topic("a").inner.sealed_seq == 2


def test_the_log_seals_several_topics_with_one_manifest_and_keeps_them(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "d") as log:
        for name in ("a", "b", "c"):
            log.topic(name).append([b"x"])
        log.checkpoint()
        before = versions = log.versions()
        log.seal(["b", "a", "b", "absent"])
        assert [log.topic(name).inner.sealed_seq for name in ("a", "b", "c")] == [1, 1, 0]
        versions = log.versions()
        assert {name for name in versions if versions[name] != before[name]} == {"a", "b"}
        assert len(list((tmp_path / "d" / "meta").glob("snapshot.*.json"))) == 2
    with seglog.open(tmp_path / "d") as log:
        assert [segment.sealed for name in ("a", "b", "c") for segment in log.topic(name).inner.segments()] == [1, 1, 0]
