"""`seglog delete` takes what `read` shows with the same conditions: the night after a bad deploy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from offload.moment import Moment
from tests.schemas import SCHEMAS, mismatches
from tests.worlds.command import Run

LINES = [b"good %d\n" % number for number in range(1, 13)]
GARBAGE = [b"NaN %d\n" % number for number in range(1, 5)]


_LONG = [pytest.param(each, marks=pytest.mark.long) for each in ("hot", "cold")]


@pytest.fixture(params=["half", "no remote", *_LONG])
def night(run: Run, tmp_path: Path, request: pytest.FixtureRequest) -> Run:
    """Topic `t`: seq 1 to 6 are good, 7 to 10 are garbage of web1 between good lines of web2, then good ones."""
    remote = () if request.param == "no remote" else ("--remote", (tmp_path / "remote").as_uri())
    assert run("init", *remote).code == 0
    run("append", "t", "--tag", "web1", stdin=b"".join(LINES[:6]))
    if request.param == "half":
        run("seal", "t")
        run("offload", "t", "--drop-hot")
    for good, bad in zip(LINES[6:10], GARBAGE, strict=True):
        run("append", "t", "--tag", "web1", stdin=bad)
        run("append", "t", "--tag", "web2", stdin=good)
    run("append", "t", "--tag", "web2", stdin=b"".join(LINES[10:]))
    if request.param in {"hot", "cold"}:
        run("seal", "t")
        assert run("offload", "t", *(["--drop-hot"] if request.param == "cold" else [])).code == 0
    return run


def _json(run: Run, *arguments: str) -> dict[str, Any]:
    done = run("--json", *arguments)
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


@pytest.mark.parametrize(
    "conditions",
    [
        ("--grep", "^NaN"),
        ("--grep", "NaN", "-F"),
        ("--from", "7", "--to", "14", "--tag", "web1"),
        ("--from", "7", "--tag", "web1"),
        ("--from", "7", "--tag", "web1*"),
        ("--from", "3", "--to", "13", "--grep", "NaN"),
        ("--to", "13", "--grep", "NaN", "--tag", "web*"),
    ],
)
def test_what_read_shows_is_what_delete_takes(night: Run, conditions: tuple[str, ...]) -> None:
    assert night("read", "t", *conditions).out == b"".join(GARBAGE)
    preview = _json(night, "delete", "t", *conditions, "--dry-run")
    assert mismatches(preview, SCHEMAS["would_take"]) == []
    assert preview["ranges"] == [{"first_seq": seq, "last_seq": seq} for seq in (7, 9, 11, 13)]
    done = _json(night, "delete", "t", *conditions, "--preview", preview["preview"], "--yes")
    assert done["deleted"] == preview["records"] == 4
    assert night("read", "t").out == b"".join(LINES)
    assert night("read", "t", "--grep", "NaN").out == b""


def test_a_range_goes_whole_and_later_records_keep_their_seqs(night: Run) -> None:
    assert night("delete", "t", "--from", "7", "--to", "14", "--yes").code == 0
    records = [json.loads(line) for line in night("--json", "read", "t").out.splitlines()]
    assert [record["seq"] for record in records] == [1, 2, 3, 4, 5, 6, 15, 16]
    assert "seq 17 to 17" in night("append", "t", stdin=b"next\n").out.decode()


@pytest.mark.parametrize("records_of", [(6, 13), (0, 0)])  # the first six records have one time
def test_times_are_inclusive_as_in_read(night: Run, records_of: tuple[int, int]) -> None:
    records = [json.loads(line) for line in night("--json", "read", "t").out.splitlines()]
    since, until = (str(Moment(records[at]["ts_ms"])) for at in records_of)
    words = ("--since", since, "--until", until)
    shown = night("read", "t", *words).out
    assert _json(night, "delete", "t", *words, "--yes")["deleted"] == len(shown.splitlines())
    assert night("read", "t", *words).out == b""


def test_a_time_before_all_records_takes_all(night: Run) -> None:
    assert _json(night, "delete", "t", "--since", "2001-01-01", "--yes")["deleted"] == 16
    assert night("read", "t").out == b""


def test_a_preview_that_is_no_longer_true_deletes_nothing(night: Run) -> None:
    preview = _json(night, "delete", "t", "--grep", "NaN", "--dry-run")["preview"]
    assert night("delete", "t", "--from", "9", "--to", "9", "--yes").code == 0
    before = night("read", "t").out
    refused = night("delete", "t", "--grep", "NaN", "--preview", preview, "--yes")
    assert (refused.code, "changed" in refused.err) == (4, True)
    assert night("read", "t").out == before
    assert night("delete", "t", "--grep", "NaN", "--preview", "1-2", "--yes").code == 2


def test_a_preview_of_records_that_a_truncation_took_deletes_nothing_else(night: Run) -> None:
    preview = _json(night, "delete", "t", "--from", "15", "--dry-run")["preview"]
    assert night("truncate", "t", "--from", "15", "--yes").code == 0
    night("append", "t", stdin=b"others\nof these seqs\n")
    assert night("delete", "t", "--from", "15", "--preview", preview, "--yes").code == 4
    assert night("read", "t", "--from", "15").out == b"others\nof these seqs\n"


def test_records_that_come_after_the_preview_stay(night: Run) -> None:
    preview = _json(night, "delete", "t", "--grep", "NaN", "--dry-run")["preview"]
    night("append", "t", "--tag", "web1", stdin=b"NaN 5\n")
    assert _json(night, "delete", "t", "--grep", "NaN", "--preview", preview, "--yes")["deleted"] == 4
    assert night("read", "t", "--grep", "NaN").out == b"NaN 5\n"


def test_what_nothing_meets_deletes_nothing(night: Run) -> None:
    before = night("read", "t").out
    for words in (("--grep", "no such text"), ("--from", "9", "--to", "8"), ("--tag", "web3")):
        assert "would take no record" in night("delete", "t", *words, "--dry-run").out.decode()
        assert _json(night, "delete", "t", *words, "--yes")["deleted"] == 0
    assert night("read", "t").out == before


def test_the_ranges_of_a_preview_are_shown(night: Run) -> None:
    shown = night("delete", "t", "--grep", "NaN", "--dry-run").out.decode()
    assert "\n  seqs: 7, 9, 11, 13\n" in shown
    assert "seqs:" not in night("delete", "t", "--from", "7", "--to", "9", "--dry-run").out.decode()


def test_a_delete_of_a_range_is_undone(run: Run, tmp_path: Path) -> None:
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    run("append", "t", stdin=b"".join(LINES))
    run("seal", "t")
    run("offload", "t")
    done = _json(run, "delete", "t", "--from", "5", "--to", "8", "--yes")
    assert run("undo", "t", f"lsn:{done['lsn']}").code == 0
    assert run("read", "t").out == b"".join(LINES)


@pytest.mark.parametrize("conditions", [("--grep", "^NaN"), ("--from", "7", "--tag", "web1"), ("--before", "9")])
def test_the_way_back_that_delete_names_brings_the_records_back(night: Run, conditions: tuple[str, ...]) -> None:
    before = night("read", "t").out
    done = _json(night, "delete", "t", *conditions, "--yes")
    assert night("read", "t").out != before
    way_back = done["undo"].split()[1:]
    seen = _json(night, *way_back, "--dry-run")
    assert night("read", "t").out != before
    undone = _json(night, *way_back)
    for shown in (seen, undone):
        assert mismatches(shown, SCHEMAS[shown["kind"]]) == []
        assert shown["records"] == done["deleted"]
    assert night("read", "t").out == before


def test_an_undo_without_a_number_takes_back_the_newest_delete_that_no_commit_has(night: Run) -> None:
    if night("seal", "t").code == 0:
        night("append", "t", stdin=b"last\n")
    before = night("read", "t").out
    for seqs in ("2", "3", "15"):
        night("delete", "t", "--seqs", seqs, "--yes")
    assert night("undo", "t", "--dry-run").out.startswith(b"undo of delete 3 of t, would bring back 1 record, seq 15")
    assert night("undo", "t", "-m", "a mistake").code == 0
    assert b"last\n" in night("read", "t").out
    assert night("read", "t").out != before


def test_what_undo_says_of_a_delete_that_it_cannot_take_back(run: Run, tmp_path: Path) -> None:
    assert run("init").code == 0
    run("append", "t", stdin=b"".join(LINES))
    refused = run("undo", "t")
    assert (refused.code, refused.err) == (4, "seglog: t: no delete can be undone here\n")
    done = _json(run, "delete", "t", "--from", "2", "--to", "3", "--yes")
    assert done["undo"] == f"seglog undo t delete:{done['number']}"
    for arguments, code, words in (
        (("t", "delete:9"), 4, "delete 9 is none that can be undone here. These can be: delete:1"),
        (("t", "delete:0"), 2, "these numbers are from 1 to"),
        (("t", "delete:x"), 2, "'delete:x' is neither lsn:N nor delete:N"),
        (("t", "lsn:1"), 2, "has no remote"),
        (("nope",), 3, "nope"),
        ((), 2, "`seglog undo TOPIC` takes back a delete"),
        (("1", "--partial"), 2, "go with a topic"),
    ):
        refused = run("undo", *arguments)
        assert (refused.code, words in refused.err) == (code, True), refused.err
    assert run("undo", "t").out == b"undone: delete 1 of t: 2 records are back, seq 2 to 3\n"
    assert run("read", "t").out == b"".join(LINES)


def test_an_undo_of_names_is_refused_while_a_later_delete_waits(run: Run, tmp_path: Path) -> None:
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    run("append", "t", stdin=b"".join(LINES))
    run("seal", "t")
    run("offload", "t")
    run("branch", "create", "t", "b")
    run("append", "t", stdin=b"last\n")
    run("delete", "t", "--seqs", "13", "--yes")
    refused = run("undo")
    assert refused.code == 4
    assert "the newest change of t is delete 1, which no commit has yet" in refused.err
    assert "`seglog undo t` takes that back" in refused.err
    assert run("undo", "t").code == 0
    assert run("read", "t").out == b"".join([*LINES, b"last\n"])
