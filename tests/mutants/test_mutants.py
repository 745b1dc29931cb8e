"""The list of mutants fits the code. `make mutants` runs them."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.__main__ import Copy, Outcome, tell
from tests.mutants.listing import ROOT, Mutant, all_mutants, mutated

MUTANTS = all_mutants()


def test_there_are_enough_of_each_package() -> None:
    assert len(MUTANTS) >= 150
    assert {mutant.file.split("/")[0] for mutant in MUTANTS} >= {"seglog", "catalog", "offload"}
    assert sum(mutant.is_java for mutant in MUTANTS) >= 20
    # A mistake may have a row for its own test, and another for the proof that finds all of its kind.
    assert len({(mutant.file, mutant.old, mutant.new, mutant.tests) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("file", sorted({mutant.file for mutant in MUTANTS}))
def test_it_changes_code_that_is_there_and_names_tests_that_are_there(file: str) -> None:
    for mutant in MUTANTS:
        if mutant.file == file:
            assert mutated(mutant)
            _check_names(mutant)


def test_a_mistake_in_a_comment_of_java_changes_no_code() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.is_java)
    in_comment = replace(mutant, old="/** Return the hash of", new="/** Return another hash of")
    with pytest.raises(ValueError, match="changes no code"):
        mutated(in_comment)


def _check_names(mutant: Mutant) -> None:
    named = [word.partition("::") for word in mutant.tests if word.startswith("tests/")]
    assert named, mutant.name
    for file, _, test in named:
        function = test.partition("[")[0].rpartition("::")[2]
        assert not test or f"def {function}(" in _text(file), (mutant.name, function)
        assert _text(file)


@functools.cache
def _text(file: str) -> str:
    return (ROOT / file).read_text()


@pytest.mark.parametrize("last", ["killed", "survived"])
def test_a_run_leaves_the_counts_of_its_verdicts_in_its_report(
    last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "build" / "run.json"
    monkeypatch.setattr("tests.mutants.__main__.REPORT", report)
    verdicts = ("killed", "equivalent", last)
    assert tell([Outcome(MUTANTS[0], verdict, 1.0, "") for verdict in verdicts]) == (last == "survived")
    expected = {"killed": 1, "equivalent": 1, "survived": 0, "broken": 0}
    expected[last] += 1
    assert json.loads(report.read_text()) == expected


@pytest.mark.long
def test_a_killed_mutant_a_survivor_and_one_without_tests_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy(tmp_path)
    text = (ROOT / "offload" / "format" / "codec.py").read_text()
    mistake = {
        "file": "offload/format/codec.py",
        "old": text,
        "new": text + "\nraise ImportError\n",
        "mistake": "no import",
    }
    killed = Mutant("killed", tests=("tests/mutants/sample.py::test_of_codec",), **mistake)
    survivor = Mutant("survivor", tests=("tests/mutants/sample.py::test_of_nothing",), **mistake)
    broken = Mutant("broken", tests=("tests/mutants/sample.py::test_that_is_missing",), **mistake)
    verdicts = [copy.judge(mutant).verdict for mutant in (killed, survivor, broken)]
    assert verdicts == ["killed", "survived", "broken"]
    assert (tmp_path / "offload" / "format" / "codec.py").read_text() == text
    equivalent = replace(survivor, equivalent="It looks at nothing.")
    with monkeypatch.context() as patch:  # the tests of the survivor, which have passed
        patch.setattr(copy, "test", lambda _: (0, ""))
        assert copy.judge(equivalent).verdict == "equivalent"
