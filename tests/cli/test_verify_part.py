"""Test `seglog verify --read-data-subset`: the state of each object, and a check that continues."""

from __future__ import annotations

import errno
import fcntl
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from catalog.format.ids import Sid, Vid
from catalog.format.keys import data_key
from catalog.gc.object_check import place_of
from catalog.objects import LocalStore
from offload.operations.verify import verify_part
from tests.worlds.command import Run

NOW_MS = 1_900_000_000_000


@pytest.fixture
def remote(run: Run, tmp_path: Path) -> Path:
    root = tmp_path / "remote"
    assert run("init", "--remote", root.as_uri()).code == 0
    for number in range(4):
        run("append", "t", stdin=b"%d\n" % number)
        run("seal", "t")
        assert run("offload", "t").code == 0
    return root


def looked(run: Run, *arguments: str, code: int = 0) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the state of each object, and the counts."""
    done = run("--json", "verify", "--read-data-subset", *arguments)
    assert done.code == code, done.err
    *rows, counts = [json.loads(line) for line in done.out.splitlines()]
    return {row["object"]: row["state"] for row in rows}, counts


def segments(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.glob("5*/segments/*") if path.is_file())


def test_each_object_has_a_state(run: Run, remote: Path) -> None:
    names = segments(remote)
    states, counts = looked(run, "100%")
    assert states == dict.fromkeys(names, "found")
    assert (counts["found"], counts["read_bytes"] > 0) == (8, True)
    data = [name for name in names if not name.endswith(".index")]
    (remote / data[0]).unlink()
    (remote / f"{data[1]}.index").write_bytes(b"short")
    body = bytearray((remote / data[2]).read_bytes())
    body[-1] ^= 1
    (remote / data[2]).write_bytes(body)
    store, vid = LocalStore(remote), Vid.parse(data[0].split("/")[0])
    old, young, part = (data_key(vid, Sid.new(ms)) for ms in (1, NOW_MS * 2, 2))
    store.put(old, b"", {})
    store.put(young, b"", {})
    store.create_upload(part, {})
    states, counts = looked(run, "100%", code=5)
    bad = {key: state for key, state in states.items() if state != "found"}
    assert bad == {
        data[0]: "lost", f"{data[1]}.index": "corrupt", data[2]: "corrupt",
        old: "orphan", young: "uploading", part: "uploading",
    }  # fmt: skip
    assert (counts["found"], counts["lost"], counts["corrupt"]) == (5, 1, 2)
    text = run("verify", "--read-data-subset", "100%").text
    assert f"lost       {data[0]}: it is not there" in text
    assert "found  " not in text


def test_a_small_part_reads_less_and_still_looks_at_each_object(run: Run, remote: Path) -> None:
    data = [name for name in segments(remote) if not name.endswith(".index")]
    states, counts = looked(run, "0.000001%", "--state", "state")
    assert (len(states), counts["read_bytes"]) == (8, 0)
    (remote / data[0]).unlink()
    assert looked(run, "0.000001%", "--state", "state", code=5)[0][data[0]] == "lost"


def test_parts_with_a_state_read_everything_once(run: Run, remote: Path) -> None:
    whole = looked(run, "100%")[1]["read_bytes"]
    parts = [looked(run, "25%", "--state", "state")[1] for _ in range(4)]
    assert [round(each["start"], 2) for each in parts] == [0, 0.25, 0.5, 0.75]
    assert sum(each["read_bytes"] for each in parts) == whole


def test_a_check_that_ended_early_continues_with_the_rest_of_its_part(remote: Path, tmp_path: Path) -> None:
    store, state = LocalStore(remote), tmp_path / "state"

    def rows() -> Any:
        return verify_part(store, NOW_MS, lambda *_: None, share=1.0, state=state)

    early = rows()
    read = [next(early) for _ in range(3)]  # two objects of the first segment, one of the second
    early.close()
    with state.open("ab") as file:
        file.write(b'"cut')  # as a kill leaves a line
    counts = list(rows())[-1]
    assert (counts.resumed, counts.found) == (2, 8)
    assert counts.read_bytes < sum((remote / name).stat().st_size for name in segments(remote))
    assert all(each.was_read for each in read)
    assert [json.loads(line) for line in state.read_bytes().splitlines()] == [{"remote": store.url, "start": 0.0}]


def test_a_state_of_something_else_or_in_use_is_refused(
    run: Run, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    for text, words in (('{"remote": "file:///x", "start": 0.0}', "belongs to file:///x"), ("[]", "is no state")):
        state.write_text(text + "\n")
        done = run("verify", "--read-data-subset", "5%", "--state", "state")
        assert (done.code, words in done.err, state.read_text()) == (2, True, text + "\n")
    with state.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another run" in run("verify", "--read-data-subset", "5%", "--state", "state").err
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    done = run("verify", "--read-data-subset", "5%", "--state", "new")
    assert (done.code, "--state new cannot be locked: No locks available" in done.err) == (2, True)
    assert run("verify", "--state", "state").code == run("verify", "--read-data-subset", "5%", "--deep").code == 2


def test_places_spread_evenly() -> None:
    places = [place_of(Sid.new(number)) for number in range(400)]
    assert all(0 <= place < 1 for place in places)
    assert 150 < sum(place < 0.5 for place in places) < 250
    assert place_of(Sid.parse(str(sid := Sid.new(7)))) == place_of(sid)
