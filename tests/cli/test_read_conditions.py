"""Test `seglog read` with --grep, --tag and --stats, as an operator calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seglog import RecordArrays
from tests.schemas import SCHEMAS, mismatches
from tests.worlds.command import Run


def test_read_finds_a_pattern_and_counts_what_it_skipped(run: Run, tmp_path: Path) -> None:
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    for tag, lines in (("web1", b"GET /a\ntimeout\n"), ("db", b"time out\n\xff\n"), ("web2", b"timed out\n")):
        run("append", "t", "--tag", tag, stdin=lines)
        run("seal", "t")
        assert run("offload", "t", "--drop-hot").code == 0
    run("append", "t", "--tag", "web3", stdin=b"timeout at the end\n")
    assert run("read", "t", "--grep", "time(d )?out").out == b"timeout\ntimed out\ntimeout at the end\n"
    assert run("read", "t", "--grep", r"^\xff$").out == b"\xff\n"
    assert run("read", "t", "--grep", "/a", "-F").out == b"GET /a\n"
    assert run("read", "t", "--grep", "(d )", "--fixed").out == b""
    found = run("read", "t", "--tag", "web*", "--grep", "timeout", "--stats")
    assert (found.out, found.err) == (
        b"timeout\ntimeout at the end\n",
        "4 records looked at; 2 chunks read, 1 left out by the index, 0 segments left out by their commits\n",
    )
    *records, stats = [
        json.loads(line) for line in run("--json", "read", "t", "--tag", "db", "--stats").out.splitlines()
    ]
    assert [record["seq"] for record in records] == [3, 4]
    assert mismatches(stats, SCHEMAS["read_stats"]) == []
    assert (stats["chunks_read"], stats["chunks_skipped"], stats["records"]) == (1, 2, 3)
    refused = run("read", "t", "--grep", "(")
    assert (refused.code, "--fixed looks for it" in refused.err) == (2, True)


def test_only_plain_values_are_written_by_the_chunk(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    as_lines = RecordArrays.lines

    def noted(self: RecordArrays) -> bytes:
        asked.append(len(self))
        return as_lines(self)

    monkeypatch.setattr(RecordArrays, "lines", noted)
    assert run("init").code == 0
    lines = [b"line %d\n" % number for number in range(1, 31)]
    run("append", "t", stdin=b"".join(lines))
    assert run("read", "t").out == b"".join(lines)
    assert run("read", "t", "--from", "2", "--to", "21").out == b"".join(lines[1:21])
    assert asked == [30, 20]
    assert run("read", "t", "--from", "2", "--to", "3").out == b"".join(lines[1:3])  # so few are read as records
    assert len(run("--json", "read", "t").out.splitlines()) == 30
    assert run("read", "t", "--limit", "20").out == b"".join(lines[:20])
    assert run("export", "t", "-", "--format", "raw").out == b"".join(lines)
    assert asked == [30, 20]
