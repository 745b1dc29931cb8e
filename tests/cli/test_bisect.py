"""Test `seglog bisect`: the first bad record or commit, as a command judges the past states."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from offload.errors import Misuse
from offload.moment import Moment
from offload.operations.bisect import FirstBad, State, Tried, Verdict, bisect
from offload.operations.commits import CommitListed, SegmentListed
from offload.operations.points import Resolved
from offload.operations.record_text import RecordBatch
from seglog import Record
from tests.schemas import SCHEMAS, mismatches
from tests.worlds.command import Done, Run

NOW = Moment(1)


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    """Five offloads of four records each. Record 10 is bad. lsn 5 deletes record 1, before the last two offloads."""
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    for first in (1, 5, 9, 13, 17):
        values = [b"bad\xff" if seq == 10 else b"record %d" % seq for seq in range(first, first + 4)]
        run("append", "orders", "--tag", f"t{first}", stdin=b"\n".join(values) + b"\n")
        run("seal", "orders")
        if first == 13:
            assert run("delete", "orders", "--before", "2", "--yes").code == 0
        assert run("offload", "orders").code == 0
    return run


def _bisected(done: Done) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Return the verdicts, and the result."""
    assert done.code == 0, done.err
    objects = [json.loads(line) for line in done.out.splitlines()]
    assert [mismatches(each, SCHEMAS[each["kind"]]) for each in objects] == [[]] * len(objects)
    *tried, found = objects
    return [(each["at"], each["verdict"]) for each in tried], found


def test_the_first_bad_record_is_found_with_its_content(started: Run) -> None:
    command = ("run", "sh", "-c", "! grep -qa bad")
    tried, found = _bisected(started("--json", "bisect", "orders", "--good", "lsn:1", *command))
    assert tried[:2] == [("lsn:1", "good"), ("lsn:6", "bad")]
    assert (found["found"], found["first_bad"], found["last_good"]) == (
        "record", "lsn:3 up to seq 10", "lsn:3 up to seq 9",
    )  # fmt: skip
    assert (found["record"]["seq"], found["record"]["tag"]) == (10, "t9")
    assert found["record"]["value_base64"] == "YmFk/w=="
    assert (found["commit"]["lsn"], found["commit"]["commit_kind"]) == (3, "offload")
    text = started("bisect", "orders", "--good", "seq:9", "--bad", "seq:11", *command).text
    assert "the first bad record: seq 10 " in text
    assert "the last good state: lsn:3 up to seq 9\n" in text


def test_the_first_bad_commit_is_found_if_it_adds_no_record(started: Run) -> None:
    _, found = _bisected(started("--json", "bisect", "orders", "--good", "lsn:2", "run", "grep", "-q", "^record 1$"))
    assert (found["found"], found["record"], found["commit"]["commit_kind"]) == ("commit", None, "delete")
    assert "delete" in started("bisect", "orders", "--good", "lsn:2", "run", "grep", "-q", "^record 1$").text


def test_the_command_gets_the_state_as_read_prints_it(started: Run, tmp_path: Path) -> None:
    script = tmp_path / "judge"
    script.write_text(
        'state="state.$SEGLOG_AT.$SEGLOG_LAST_SEQ"; cat > $state; echo "$SEGLOG_TOPIC $SEGLOG_DIR" >> told\n'
        "! grep -qa bad $state"
    )
    started("bisect", "orders", "--good", "lsn:2", "--bad", "lsn:3", "run", "sh", "judge")
    assert (tmp_path / "state.lsn:3.").read_bytes() == started("read", "orders", "--at", "lsn:3").out
    assert (tmp_path / "state.lsn:3.9").read_bytes() == started("read", "orders", "--at", "seq:9").out
    assert set((tmp_path / "told").read_text().splitlines()) == {f"orders {tmp_path / 'data'}"}


def test_a_command_that_cannot_tell_leaves_a_range(started: Run) -> None:
    command = ("run", "sh", "-c", "case $SEGLOG_AT in lsn:[345]) exit 125; esac; ! grep -qa bad")
    _, found = _bisected(started("--json", "bisect", "orders", "--good", "lsn:2", *command))
    assert (found["found"], found["skipped"], found["first_bad"]) == ("unsettled", ["lsn:3", "lsn:4", "lsn:5"], "lsn:6")
    assert "is one of lsn:3, lsn:4, lsn:5, lsn:6" in started("bisect", "orders", "--good", "lsn:2", *command).text


def test_wrong_ends_and_commands_are_refused(started: Run) -> None:
    for words, code, told in (
        (("--good", "lsn:1", "run", "true"), 2, "--bad: the command says good of lsn:6"),
        (("--good", "lsn:1", "run", "false"), 2, "--good: the command says bad of lsn:1"),
        (("--good", "lsn:3", "--bad", "lsn:2", "run", "true"), 2, "lsn:3 is not before --bad lsn:2"),
        (("--good", "lsn:3", "--bad", "lsn:3", "run", "true"), 2, "lsn:3 is not before --bad lsn:3"),
        (("--good", "seq:3", "--bad", "seq:3", "run", "true"), 2, "seq:3 is not before --bad seq:3"),
        (("--good", "lsn:9", "run", "true"), 3, "lsn:9"),
        (("--good", "lsn:1", "run", "sh", "-c", "exit 130"), 1, "exit code 130 at lsn:1"),
        (("--good", "lsn:1", "run", "sh", "-c", "kill -9 $$"), 1, "signal 9"),
        (("--good", "lsn:1", "run", "./nosuch"), 3, "nosuch"),
        (("--good", "lsn:1", "run"), 2, "needs CMD"),
        (("--good", "lsn:1", "do", "true"), 2, "RUN takes run, not 'do'"),
        (("run", "true"), 2, "needs --good"),
    ):
        done = started("bisect", "orders", *words)
        assert (done.code, told in done.err) == (code, True), (words, done.err)


class _Past:
    """A history in memory. Each commit has the records that its state shows."""

    def __init__(self, states: list[list[int]], commits: list[CommitListed]) -> None:
        self.states = states
        self._commits = commits

    def resolve(self, target: str) -> Resolved:
        return Resolved("t", target, "v", int(target.removeprefix("lsn:")), None, (), (), None, None, None)

    def commits(self) -> Iterator[CommitListed]:
        return iter(self._commits[::-1])

    def shown(self, state: State) -> list[int]:
        seqs = self.states[int(state.at.removeprefix("lsn:")) - 1]
        return [seq for seq in seqs if state.last_seq is None or seq <= state.last_seq]

    def records(self, state: State, first_seq: int | None = None) -> Iterator[RecordBatch]:
        found = (Record(seq, 1, b"") for seq in self.shown(state) if seq >= (first_seq or 0))
        yield RecordBatch(tuple(found))


def _past(rng: random.Random) -> _Past:
    states: list[list[int]] = []
    commits: list[CommitListed] = []
    head = 0
    for lsn in range(1, rng.randint(3, 30)):
        before = states[-1] if states else []
        if rng.random() < 0.7 or not before:
            first, head = head + 1, head + rng.randint(1, 40)
            states.append([*before, *range(first, head + 1)])
            kind, segments = "offload", (SegmentListed("s", first, head, 1, "none"),)
        else:
            kind, segments = "delete", ()
            states.append(before)
        commits.append(
            CommitListed(
                f"lsn:{lsn}",
                "v",
                lsn,
                "",
                kind,
                NOW,
                head,
                None,
                NOW,
                head,
                segments,
                None,
                "",
                1,
                "",
                0,
                0,
                0,
                0,
                None,
            )
        )
    return _Past(states, commits)


def test_any_bad_record_of_any_history_is_found_in_few_steps() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        past = _past(rng)
        last = len(past.states)
        culprit = rng.choice(past.states[-1][len(past.states[0]) :] or [0])
        if not culprit:
            continue
        skipped = {rng.randint(2, last) for _ in range(rng.randint(0, 3))} if seed % 3 == 0 else set()
        asked = []

        def judge(state: State, culprit: int = culprit, skipped: set[int] = skipped, past: _Past = past) -> Verdict:
            asked.append(state)  # noqa: B023 - the list of this round
            if state.last_seq is None and int(state.at[4:]) in skipped:
                return Verdict.SKIP
            return Verdict.BAD if culprit in past.shown(state) else Verdict.GOOD

        *tried, found = bisect("t", past, judge, "lsn:1", f"lsn:{last}")
        assert isinstance(found, FirstBad)
        assert all(isinstance(each, Tried) for each in tried)
        assert len(asked) <= 18 + len(skipped)
        if found.found == "record":
            assert found.record is not None
            assert found.record.seq == culprit
        else:
            assert found.found == "unsettled"
            suspects = {int(each[4:]) for each in (*found.skipped, found.first_bad)}
            assert any(culprit in past.states[lsn - 1] and culprit not in past.states[lsn - 2] for lsn in suspects)


def test_a_good_point_after_the_bad_one_is_refused() -> None:
    past = _past(random.Random(1))
    with pytest.raises(Misuse, match="--good lsn:2 is not before --bad lsn:1"):
        list(bisect("t", past, lambda _: Verdict.GOOD, "lsn:2", "lsn:1"))
