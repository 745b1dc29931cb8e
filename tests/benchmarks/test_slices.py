from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.options import Options
from benchmarks.runner import percentiles
from benchmarks.slices import Figures, Open, Slice, Unavailable, in_slices


def test_subjects_stay_open_and_take_turns_and_one_that_is_missing_is_told(tmp_path: Path) -> None:
    events: list[str] = []

    def subject(name: str) -> Open:
        @contextmanager
        def open_subject(directory: Path) -> Iterator[Slice]:
            assert list(directory.iterdir()) == []
            if name == "gone":
                raise Unavailable("not installed")
            events.append(f"open {name}")

            def work(slice_s: float) -> Figures:
                events.append(name)
                return {"rate": float(len(events))}

            yield work
            events.append(f"close {name}")

        return open_subject

    options = Options(tmp_path, rounds=2, slice_s=0.001)
    rounds = in_slices(options, "test", {"a": subject("a"), "gone": subject("gone"), "b": subject("b")})
    assert events == ["open a", "open b", "a", "b", "a", "b", "b", "a", "close b", "close a"]
    assert [figures["rate"] for figures in rounds.by_subject["a"]] == [5, 8]
    assert rounds.missing == {"gone": "not installed"}
    assert list(tmp_path.iterdir()) == []


def test_percentiles_are_in_microseconds() -> None:
    found = percentiles([number / 1e6 for number in range(1, 1002)])
    assert [round(found[name]) for name in ("p50_us", "p99_us", "p999_us")] == [501, 991, 1000]
    assert percentiles([1.0]) == {"p50_us": 1e6, "p99_us": 1e6, "p999_us": 1e6}
