from __future__ import annotations

from benchmarks.runner import Rounds, in_turns


def test_subjects_take_turns_after_a_warm_up_and_the_order_rotates() -> None:
    calls: list[str] = []

    def subject(name: str) -> dict[str, float]:
        calls.append(name)
        return {"rate": float(len(calls))}

    rounds = in_turns({"a": lambda: subject("a"), "b": lambda: subject("b")}, rounds=2, label="test")
    assert calls == ["a", "b", "a", "b", "b", "a"]
    assert [figures["rate"] for figures in rounds.by_subject["a"]] == [3, 6]
    calls.clear()
    in_turns({"a": lambda: subject("a"), "b": lambda: subject("b")}, rounds=1, label="test", warm_ups=2)
    assert calls == ["a", "b"] * 3


def test_a_ratio_is_the_median_of_the_rounds_and_above_one_means_better() -> None:
    rounds = Rounds(
        {
            "seglog": [{"rate": 20, "time": 1}, {"rate": 30, "time": 1}, {"rate": 1000, "time": 4}],
            "other": [{"rate": 10, "time": 2}, {"rate": 10, "time": 3}, {"rate": 10, "time": 4}],
        }
    )
    assert rounds.ratio("seglog", "other", "rate", more_is_better=True) == 3
    assert rounds.ratio("seglog", "other", "time", more_is_better=False) == 2
    assert rounds.median("seglog", "rate") == 30
