"""A machine is lost, and another machine takes over. If the first one comes back, it no longer writes. Real daemons."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

import seglog
from offload.recovery import Recovered, recover
from tests.daemons import ServedDirectory, served
from tests.worlds.remotes import s3_is_long


def ship(daemon: ServedDirectory, value: bytes) -> dict[str, object]:
    """Append, seal and offload. Return the answer to the offload."""
    daemon.append("t", value)
    daemon.call("seal", topic="t")
    [said] = daemon.call("offload", topic="t")
    return said


def until_synced(daemon: ServedDirectory, topic: str, expected: list[str]) -> None:
    for _ in range(600):
        if daemon.values(topic) == expected:
            return
        time.sleep(0.05)
    raise AssertionError(daemon.values(topic))


@pytest.mark.long
@s3_is_long
def test_what_was_offloaded_reads_back_elsewhere_and_writing_goes_on(tmp_path: Path, remote: str) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    seglog.open(old).close()
    with served(old, remote, OFFLOAD_OFFLOAD_AFTER_S="never") as daemon:
        daemon.call("topic/create", topic="t", codec="none")
        daemon.call("topic/set", topic="t", ttl="7d")
        for number in range(1, 6):
            ship(daemon, b"%d" % number)
        daemon.call("delete", topic="t", before=2, yes=True)
        daemon.call("offload", topic="t")  # else the daemon may be killed before its background commits the delete
        daemon.call("restore", topic="t", to="seq:3", as_branch="three")
        assert daemon.append("t", b"acked here only") == 6
        daemon.kill()
    shutil.move(old, tmp_path / "lost")

    found = {each.topic: each for each in recover(new, remote)}
    main, branch = found["t"], found["t@three"]
    assert isinstance(main, Recovered)
    assert isinstance(branch, Recovered)
    assert (main.head_seq, main.records, branch.records, set(found)) == (5, 4, 3, {"t", "t@three"})

    with served(new, remote, OFFLOAD_OFFLOAD_AFTER_S="never") as daemon:
        assert daemon.values("t") == ["2", "3", "4", "5"]
        assert daemon.values("t@three") == ["1", "2", "3"]
        assert daemon.append("t", b"six") == 6
        assert daemon.append("t@three", b"four") == 4
        [shown] = daemon.call("topic/show", topic="t")
        assert (shown["ttl_ms"], shown["attributes"]["codec"]) == (7 * 86_400_000, "none")
        daemon.call("seal", topic="t")
        assert daemon.call("offload", topic="t")[0]["offloaded_seq"] == 6

        with served(tmp_path / "lost", remote, OFFLOAD_OFFLOAD_AFTER_S="never") as back:
            assert back.append("t", b"still acked") == 7
            back.call("seal", topic="t")
            assert back.call("offload", topic="t")[0]["title"] == "Fenced"
            assert back.status("t")["fenced_epoch"] == 2
            [reset] = back.call("reset", topic="t", as_branch="found")
            assert (reset["records"], reset["branch"]) == (2, "t@found")
            assert back.values("t@found") == ["2", "3", "4", "5", "acked here only", "still acked"]
            assert back.values("t") == ["2", "3", "4", "5", "six"]
        assert daemon.values("t") == ["2", "3", "4", "5", "six"]


@pytest.mark.long
@s3_is_long
def test_two_daemons_on_one_topic_cannot_take_turns(tmp_path: Path, remote: str) -> None:
    """A fenced daemon stays fenced, whatever commands it gets, and its background tasks leave the topic alone."""
    for name in ("one", "two"):
        seglog.open(tmp_path / name).close()
    with (
        served(tmp_path / "one", remote, OFFLOAD_OFFLOAD_AFTER_S="0") as one,
        served(tmp_path / "two", remote, CATALOG_SYNC_INTERVAL_S="1") as two,
    ):
        ship(one, b"1")
        two.call("sync", topic="t")
        assert two.values("t") == ["1"]
        ship(one, b"2")
        until_synced(two, "t", ["1", "2"])  # the background of `two` syncs
        assert two.get("/topics") == [{"topics": ["t"]}]
        assert two.get("/topics/t/index_bounds") == [{"earliest_seq": 1, "head_seq": 2, "hot_first_seq": 3}]
        assert [each["value"] for each in two.get("/topics/t/records?from=2")] == ["2"]
        assert two.get("/topics/t/records/2") == [2]
        assert two.get("/topics/t/records?from=9")[0]["title"] == "SeqOutOfRange"
        assert [each["value"] for each in two.get("/topics/t/records?from=2&wait_s=1")] == ["2"]
        assert two.get("/topics/nowhere/index_bounds")[0]["title"] == "NoSuchTopic"
        assert two.append("t", b"3") == 3
        assert ship(one, b"x")["title"] == "Fenced"
        for number in range(3):
            status, body, _ = one.ask("POST", "/topics/t/records", b"y", {"Content-Type": "application/octet-stream"})
            assert (status, json.loads(body)["title"]) == (409, "WrittenElsewhere"), "it knows by now"
            assert one.call("takeover", topic="t")[0]["title"] == "Fenced"
            assert one.call("sync", topic="t")[0]["title"] == "Fenced"
            assert "title" not in ship(two, b"%d" % (number + 4))
        assert one.values("t") == ["1", "2", "x"]
        assert two.values("t") == ["1", "2", "3", "4", "5", "6"]
        epochs = [each["epoch"] for each in two.call("log", topic="t")]
        assert epochs == [2] * (len(epochs) - 2) + [1, 1]
        assert one.status("t")["offloaded_seq"] == 2
        assert one.process.poll() is None
