"""The list of mutants fits the code. `make mutants` runs them."""

from __future__ import annotations

import builtins
import functools
import json
import symtable
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
            changed = mutated(mutant)
            _check_names(mutant)
            # A test would kill it whatever it tests: each run of the line is a NameError.
            assert mutant.is_java or _undefined(changed) <= _undefined(_text(file)), mutant.name


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
def _undefined(text: str) -> frozenset[str]:
    """Return the names that a module uses and nobody defines."""
    module = symtable.symtable(text, "mutant", "exec")
    tables, used = [module], set[str]()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        used |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (symbol.is_global() or table is module)
        }
    defined = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    defined |= {child.get_name() for child in module.get_children()} | set(dir(builtins))
    return frozenset(used - defined - {"__file__", "__name__"})


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
    targets = {"killed": "make test-all"}
    outcomes = [Outcome(MUTANTS[0], verdict, targets.get(verdict, verdict), 1.0, "") for verdict in verdicts]
    assert tell(outcomes) == (last == "survived")
    expected = {"killed": 1, "equivalent": 1, "survived": 0, "broken": 0, "by make test": 0, "by make test-all": 1}
    expected[last] += 1
    expected["by make test-all"] = expected["killed"]
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
    late = Mutant("late", tests=(*survivor.tests, "tests/mutants/sample.py::test_of_codec_for_long"), **mistake)
    outcomes = [copy.judge(mutant) for mutant in (killed, late, survivor, broken)]
    assert [outcome.verdict for outcome in outcomes] == ["killed", "killed", "survived", "broken"]
    assert [outcome.target for outcome in outcomes[:2]] == ["make test", "make test-all"]
    assert (tmp_path / "offload" / "format" / "codec.py").read_text() == text
    equivalent = replace(survivor, equivalent="It looks at nothing.")
    with monkeypatch.context() as patch:  # the tests of the survivor, which have passed
        patch.setattr(copy, "test", lambda *_: (0, ""))
        assert copy.judge(equivalent).verdict == "equivalent"
