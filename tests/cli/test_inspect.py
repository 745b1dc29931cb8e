from __future__ import annotations

import base64
import json
from pathlib import Path

from tests.offload.ledgers import Ledger
from tests.worlds.command import Run

GOLDEN = Path(__file__).parent.parent / "golden"


def test_a_streamed_index_object_of_pulsar_is_told(run: Run):
    done = run("--json", "inspect", str(GOLDEN / "pulsar_v2.index"))
    found = json.loads(done.out)["contents"]
    assert (done.code, found["kind"]) == (0, "streamed index object")
    assert [(ledger["ledger_id"], len(ledger["entries"])) for ledger in found["ledgers"]] == [(8, 3), (9, 1)]


def test_data_objects_of_pulsar_are_told_block_by_block(run: Run):
    for name, kind, blocks in (("pulsar_v1", "data object", 5), ("pulsar_v2", "streamed data object", 4)):
        found = json.loads(run("--json", "inspect", str(GOLDEN / f"{name}.data")).out)["contents"]
        assert (found["kind"], len(found["blocks"])) == (kind, blocks)


def test_the_entries_of_a_ledger_are_given(run: Run):
    ledger = Ledger(7, 0, 40, 1)
    arguments = ("inspect", "--entries", str(GOLDEN / "pulsar_v1.data"), "--index", str(GOLDEN / "pulsar_v1.index"))
    found = [json.loads(line) for line in run("--json", *arguments).text.splitlines()]
    assert [(one["entry"], base64.b64decode(one["data_base64"])) for one in found] == ledger.entries()
    assert {one["ledger"] for one in found} == {None}
    lines = run(*arguments, "--from", "3", "--to", "4").text.splitlines()
    assert lines == [f"{number} {len(ledger.entry(number))} {ledger.entry(number).hex()}" for number in (3, 4)]


def test_the_index_object_is_found_by_its_name(run: Run, tmp_path: Path):
    for name, data, index in (
        ("pulsar_v2", "2f6c0d9e-1b1f-4b8e-9d0a", "2f6c0d9e-1b1f-4b8e-9d0a-index"),
        ("offload_zstd", "8H25GJkFT5", "8H25GJkFT5.index"),
    ):
        (tmp_path / data).write_bytes((GOLDEN / f"{name}.data").read_bytes())
        (tmp_path / index).write_bytes((GOLDEN / f"{name}.index").read_bytes())
    lines = run("inspect", "--entries", str(tmp_path / "2f6c0d9e-1b1f-4b8e-9d0a")).text.splitlines()
    assert [line.split()[0] for line in (lines[0], lines[-1])] == ["8:5", "9:2"]
    assert len(run("inspect", "--entries", str(tmp_path / "8H25GJkFT5")).text.splitlines()) == 45
    (tmp_path / "2f6c0d9e-1b1f-4b8e-9d0a-index").unlink()
    assert run("inspect", "--entries", str(tmp_path / "2f6c0d9e-1b1f-4b8e-9d0a")).code == 3


def test_damage_is_located_after_what_lies_before_it(run: Run, tmp_path: Path):
    body = bytearray((GOLDEN / "pulsar_v1.data").read_bytes())
    body[700] ^= 1
    (tmp_path / "ledger").write_bytes(body)
    done = run("inspect", "--entries", str(tmp_path / "ledger"), "--index", str(GOLDEN / "pulsar_v1.index"))
    assert done.code == 5
    assert "ledger is damaged at offset 700" in done.err
    assert done.text.startswith("0 1 ")


def test_the_url_of_a_file_quotes_its_path(run: Run, tmp_path: Path):
    place = tmp_path / "my ledgers/pulsar v1"
    place.parent.mkdir()
    place.write_bytes((GOLDEN / "pulsar_v1.data").read_bytes())
    assert run("inspect", place.as_uri()).out == run("inspect", str(place)).out != b""
    assert run("inspect", f"{place.as_uri()}%20").code == 3
