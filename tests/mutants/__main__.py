"""Run the tests against each mutant: `make mutants`, or `python -m tests.mutants [--jobs N] [WORD ...]`.

A word picks the mutants whose name, file or mistake contains it.

1. The runner copies the project to a scratch directory for each job.
2. It runs all tests that mutants name, without a mutant. If one fails, the runner stops: a failure would prove nothing.
3. For each mutant it changes one module in the copy, runs the mutant's tests, and puts the module back. Those of
   `make test` run first, and the long ones only if all of these passed. So the runner tells which target kills it.
   For a mutant in Java, it also makes the jar of the copy, and puts the former jar back.

Killed: a test failed, or the tests hung. Survived: all tests passed. Broken: pytest ran no test, or ended otherwise, or
javac refused the mutant.
The exit code is 0 if every mutant was killed or is explained as equivalent.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.listing import ROOT, Mutant, all_mutants, mutated
from tests.runs import REPORT
from tests.work import SEED

_COPIED = ("seglog", "catalog", "offload", "tests", "benchmarks", "docs", "scripts", "localstack")
_OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "--timeout=100")
_TARGETS = {"make test": "not long and not soak", "make test-all": "long and not soak"}
_LONGEST_S = 900
_JAR = "offload/spark/jvm/seglog-spark.jar"
_PASSED, _FAILED, _NONE_CHOSEN, _UNMADE = 0, 1, 5, -1


@dataclass(frozen=True, slots=True)
class Outcome:
    mutant: Mutant
    verdict: str
    target: str  # that kills it, or the verdict
    seconds: float
    output: str


class Copy:
    """A copy of the project in which one mutant lives at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in _COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "target"))
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy2(path, folder)

    def test(self, arguments: tuple[str, ...], marks: str = "not soak") -> tuple[int | None, str]:
        """Return pytest's exit code, or None if it hung, and its output."""
        command = [sys.executable, "-B", "-m", "pytest", *_OPTIONS, "-m", marks, *arguments]
        # As `make test`, but that Hypothesis does not shrink an example that fails (tests/conftest.py).
        environment = {SEED: "30"} | os.environ | {"PYTHONPATH": str(self._folder), "TESTS_MUTANT": "1"}
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=_LONGEST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            return None, output
        return process.returncode, output

    def _make_jar(self) -> tuple[int, str]:
        """Return an exit code that is none of pytest's if javac refuses the sources, and its output."""
        command = [sys.executable, "-B", "scripts/jar.py", "--installed"]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False)
        return _UNMADE if done.returncode else _PASSED, done.stdout + done.stderr

    def judge(self, mutant: Mutant) -> Outcome:
        path, jar = self._folder / mutant.file, self._folder / _JAR
        sound, sound_jar = path.read_text(), jar.read_bytes()
        began = time.monotonic()
        path.write_text(mutated(mutant))
        try:
            code, output = self._make_jar() if mutant.is_java else (_PASSED, "")
            target, output = self._killer(mutant.tests) if code == _PASSED else ("broken", output)
        finally:
            path.write_text(sound)
            jar.write_bytes(sound_jar)
        verdict = "killed" if target in _TARGETS else target
        if verdict == "survived" and mutant.equivalent:
            verdict = "equivalent"
        return Outcome(mutant, verdict, target, time.monotonic() - began, output)

    def _killer(self, tests: tuple[str, ...]) -> tuple[str, str]:
        """Return the target whose tests notice the mutant, or `survived` or `broken`, and their output."""
        codes = set()
        for target, marks in _TARGETS.items():
            code, output = self.test(tests, marks)
            if code in {None, _FAILED}:
                return target, output
            if code not in {_PASSED, _NONE_CHOSEN}:
                return "broken", output
            codes.add(code)
        return "survived" if _PASSED in codes else "broken", output


def check_sound(copy: Copy, mutants: list[Mutant]) -> None:
    """Run each set of tests once without a mutant. Exits if one fails."""
    for arguments in sorted({mutant.tests for mutant in mutants}):
        code, output = copy.test(arguments)
        if code != _PASSED:
            sys.exit(f"{output}\nthe tests {' '.join(arguments)} do not pass without a mutant")


def tell(outcomes: list[Outcome]) -> int:
    """Print the survivors and the counts, which `tests.runs` also takes from its report. Return the exit code."""
    counts = dict.fromkeys(("killed", "equivalent", "survived", "broken"), 0)
    by_target = {f"by {target}": sum(outcome.target == target for outcome in outcomes) for target in _TARGETS}
    for outcome in outcomes:
        counts[outcome.verdict] += 1
        mutant = outcome.mutant
        if outcome.verdict == "equivalent":
            print(f"equivalent: {mutant.name} {mutant.file}: {mutant.mistake}\n  {mutant.equivalent}")
        if outcome.verdict in ("survived", "broken"):
            print(f"{outcome.verdict}: {mutant.name} {mutant.file}: {mutant.mistake}\n  {' '.join(mutant.tests)}")
        if outcome.verdict == "broken":
            print(outcome.output)
    print(f"mutants: {len(outcomes)}, " + ", ".join(f"{verdict} {count}" for verdict, count in counts.items()))
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(counts | by_target, indent=1) + "\n")
    return 1 if counts["survived"] or counts["broken"] or not outcomes else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.split("\n", 1)[0])
    parser.add_argument("words", nargs="*", metavar="WORD", help="only mutants with a WORD in name, file or mistake")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time (default: one a core)")
    parser.add_argument("--exactly", action="store_true", help="a WORD is the whole name of a mutant")
    parser.add_argument("--unsound", action="store_true", help="skip the run without a mutant")
    options = parser.parse_args()
    mutants = [
        mutant
        for mutant in all_mutants()
        if not options.words
        or any(
            word == mutant.name if options.exactly else word in f"{mutant.name} {mutant.file} {mutant.mistake}"
            for word in options.words
        )
    ]
    with tempfile.TemporaryDirectory() as scratch:
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(options.jobs):
            (folder := Path(scratch) / str(number)).mkdir()
            copies.put(Copy(folder))
        if not options.unsound:
            copy = copies.get()
            check_sound(copy, mutants)
            copies.put(copy)

        def judge(mutant: Mutant) -> Outcome:
            copy = copies.get()
            try:
                outcome = copy.judge(mutant)
            finally:
                copies.put(copy)
            how = outcome.target if outcome.verdict == "killed" else outcome.verdict
            print(f"{how:13} {outcome.seconds:6.1f} s  {mutant.name}: {mutant.mistake}", flush=True)
            return outcome

        with ThreadPoolExecutor(options.jobs) as threads:
            outcomes = list(threads.map(judge, mutants))
    return tell(outcomes)


if __name__ == "__main__":
    sys.exit(main())
