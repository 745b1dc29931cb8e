"""Test `seglog export` as an operator calls it: files, forms, standard output, refusals."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
from pathlib import Path

import pytest
from pyarrow import parquet

from offload.operations.export_directory import OpenPart, PartExported
from offload.spark.columns import EXPORT_COLUMNS
from tests.schemas import SCHEMAS, mismatches
from tests.trees import tree
from tests.worlds.command import Run

LINES = ["one", "", "drei\u00e4", "four"]


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    """Four records of text, one that is no text, and one without a line feed. lsn 3 deletes the first record."""
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    run("append", "orders", "--tag", "a", "--node", "n", stdin="\n".join(LINES).encode() + b"\n")
    run("seal", "orders")
    run("offload", "orders")
    run("append", "orders", "--tag", "b", stdin=b"\xff\x00\nlast")
    run("seal", "orders")
    run("offload", "orders")
    assert run("delete", "orders", "--before", "2", "--yes").code == 0
    assert run("offload", "orders").code == 0
    return run


def test_jsonl_goes_back_into_a_log_with_values_and_tags(started: Run, tmp_path: Path) -> None:
    done = started("export", "orders", "out", "--at", "lsn:2")
    assert (done.code, done.err) == (0, "")
    assert done.text == "exported 6 records of orders at lsn 2, seq 1 to 6, to out: 1 file, " + done.text[-6:]
    [part] = (tmp_path / "out").glob("seqs-*")
    assert part.name == "seqs-0000000000000001-0000000000000006.jsonl"
    shown = started("--json", "read", "orders", "--at", "lsn:2").out
    assert part.read_bytes() == shown
    assert started("append", "back", str(part), "--format", "jsonl").code == 0
    again = [json.loads(line) for line in started("--json", "read", "back").out.splitlines()]
    former = [json.loads(line) for line in shown.splitlines()]
    assert [{**record, "ts_ms": 0} for record in again] == [{**record, "ts_ms": 0} for record in former]
    assert started("read", "back").out == started("read", "orders", "--at", "lsn:2").out
    assert former[4]["value_base64"] == base64.b64encode(b"\xff\x00").decode()
    assert (former[0]["tag"], former[0]["node"], former[5]["tag"]) == ("a", "n", "b")


def test_the_output_is_as_its_schema_says_and_is_the_manifest(started: Run, tmp_path: Path) -> None:
    done = started("--json", "export", "orders", "out", "--part-bytes", "100")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [mismatches(line, SCHEMAS[line["kind"]]) for line in lines] == [[]] * len(lines)
    assert [line["kind"] for line in lines] == ["export_begun", *["part_exported"] * (len(lines) - 2), "exported"]
    assert (tmp_path / "out" / "manifest.jsonl").read_bytes() == done.out
    for part in lines[1:-1]:
        body = (tmp_path / "out" / part["file"]).read_bytes()
        assert (part["bytes"], part["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    found = json.loads(started("--json", "export", "orders", "out", "--verify").out)
    assert mismatches(found, SCHEMAS[found["kind"]]) == []
    assert (found["kind"], found["is_whole"], found["records"]) == ("export_verified", True, 5)
    (tmp_path / "out" / lines[1]["file"]).write_bytes(b"other")
    damaged = started("export", "orders", "out", "--verify")
    assert (damaged.code, "has other bytes" in damaged.text, "1 damage in out" in damaged.err) == (5, True, True)


def test_raw_has_the_bytes_of_read(started: Run, tmp_path: Path) -> None:
    assert started("export", "orders", "out", "--format", "raw").code == 0
    [part] = (tmp_path / "out").glob("seqs-*.raw")
    assert part.read_bytes() == started("read", "orders").out == "\ndreiä\nfour\n".encode() + b"\xff\x00\nlast"
    assert started("export", "orders", "-", "--format", "raw").out == part.read_bytes()
    assert (
        started("export", "orders", "-", "--at", "lsn:1").out
        == started("--json", "read", "orders", "--at", "lsn:1").out
    )
    assert "expired" in started("pin", "list").text
    assert "until" not in started("pin", "list").text


def test_parquet_has_the_columns_of_the_export_in_spark(started: Run, tmp_path: Path) -> None:
    assert started("export", "orders", "out", "--format", "parquet", "--at", "lsn:2").code == 0
    [part] = (tmp_path / "out").glob("seqs-*.parquet")
    table = parquet.read_table(part)
    assert tuple(table.column_names) == EXPORT_COLUMNS
    rows = table.to_pylist()
    assert [row["seq"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["lsn"] for row in rows] == [1, 1, 1, 1, 2, 2]
    assert (rows[0]["value"], rows[0]["tag"], rows[0]["node"], rows[5]["node"]) == (b"one", "a", "n", None)
    [record, *_] = [json.loads(line) for line in started("--json", "read", "orders", "--at", "lsn:1").out.splitlines()]
    assert round(rows[0]["timestamp"].timestamp() * 1000) == record["ts_ms"]


def test_a_log_without_a_remote_is_exported(run: Run, tmp_path: Path) -> None:
    assert run("init").code == 0
    run("append", "t", stdin=b"a\nb\n")
    assert run("export", "t", "out", "--format", "parquet").code == 0
    [part] = (tmp_path / "out").glob("seqs-*")
    assert [row["lsn"] for row in parquet.read_table(part).to_pylist()] == [None, None]
    run("topic", "create", "empty")
    assert run("export", "empty", "none").text == "exported 0 records of empty to none: 0 files, 0 B\n"


def test_ctrl_c_says_how_to_continue(started: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep, calls = OpenPart.keep, []

    def interrupted(part: OpenPart, *arguments: int) -> PartExported:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return keep(part, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(OpenPart, "keep", interrupted)
        done = started("export", "orders", "out", "--part-bytes", "1")
    assert (done.code, done.err) == (130, "interrupted: this run ended 2 files; repeat the command to continue\n")
    assert len(list((tmp_path / "out").iterdir())) == 3
    assert started("export", "orders", "out", "--part-bytes", "1").code == 0
    bodies = [path.read_bytes() for path in sorted((tmp_path / "out").glob("seqs-*"))]
    assert b"".join(bodies) == started("--json", "read", "orders").out


def _kept(directory: Path) -> dict[str, bytes]:
    """Return the files, except those of the data directory: its lock names the process."""
    return {path: body for path, body in tree(directory).items() if not path.startswith("data/")}


def test_bad_input_leaves_nothing_behind(started: Run, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_bytes(b"x")
    (tmp_path / "file").write_bytes(b"x")
    before = _kept(tmp_path)
    for words, code, told in (
        (("nope", "out"), 3, "no topic nope"),
        (("orders@nope", "out"), 3, "orders@nope"),
        (("orders", "out", "--at", "lsn:9"), 3, "Restorable: "),
        (("orders", "out", "--at", "nonsense"), 2, "nonsense"),
        (("orders", "out", "--at", "pin:nope"), 3, "no pin nope"),
        (("orders", "out", "--format", "csv"), 2, "csv"),
        (("orders", "out", "--part-bytes", "0"), 2, "--part-bytes"),
        (("orders",), 2, "needs DIR"),
        (("orders", "full"), 4, "full is not empty"),
        (("orders", "file"), 2, "file is a file"),
        (("orders", "-", "--format", "parquet"), 2, "needs a directory"),
        (("orders", "-", "--verify"), 2, "the output is the records"),
        (("orders", "-", "--json"), 2, "the output is the records"),
        (("orders", "out", "--verify"), 2, "has no export"),
        (("orders", "out", "--verify", "--at", "head"), 2, "--verify takes no --at"),
    ):
        done = started("export", *words)
        assert (done.code, told in done.err, done.out) == (code, True, b""), (words, done.err)
        assert _kept(tmp_path) == before, words


def test_beside_another_writer_the_export_says_that_no_lease_holds_its_state(started: Run, tmp_path: Path) -> None:
    with (tmp_path / "data" / "LOCK").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = started("export", "orders", "out", "--format", "raw")
    assert (done.code, "no lease holds head of orders" in done.err) == (0, True)


def test_the_segments_of_a_state_are_listed(started: Run) -> None:
    found = [json.loads(line) for line in started("--json", "segments", "orders", "--at", "seq:5").out.splitlines()]
    assert [(each["first_seq"], each["last_seq"], each["lsn"]) for each in found] == [(1, 4, 1), (5, 5, 2)]
    assert started("segments", "orders").text.startswith("seq 2-4 ")
    assert started("segments", "nope").code == 3
