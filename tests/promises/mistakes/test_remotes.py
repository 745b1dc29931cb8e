"""The remote changes, is emptied, restored, damaged, shared or denied."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import offload
import seglog
from catalog.errors import (
    AccessDenied,
    Diverged,
    Fenced,
    InvalidObject,
    NoSuchBucket,
    NoSuchObject,
    StoreUnreachable,
)
from offload import ColdSettings
from offload.archive import Archive
from offload.errors import InvalidChunk, NameDeleted, OtherRemote, RemoteBehind
from seglog import Appended, Log, LogSettings, ProducerBatch, TopicConfig, WrittenElsewhere
from tests.faults.front import Front, HttpFault
from tests.faults.scripted_s3 import ScriptedS3
from tests.promises.mistakes.scene import filled, numbered, tree, values
from tests.worlds.command import command


@contextmanager
def attached(base: Path, url: str = "", name: str = "data") -> Iterator[tuple[Log, Archive]]:
    """The data directory `name` below `base`, and its archive: in the directory `remote` beside it, or at `url`."""
    once = ColdSettings(get_attempts=1, get_timeout_s=5)
    with (
        seglog.open(base / name) as log,
        offload.attach(log, url or (base / "remote").as_uri(), settings=offload.Settings().with_parts(once)) as archive,
    ):
        yield log, archive


def shipped(base: Path, url: str = "", *, count: int = 4, first: int = 1, drop_hot: bool = False) -> None:
    """Append ten records `count` times, each ten a commit."""
    with attached(base, url) as (log, archive):
        for number in range(count):
            log.topic("orders").append(numbered(10, first + 10 * number))
            log.topic("orders").seal()
            archive.offload("orders", drop_hot=drop_hot)


def objects(base: Path, part: str, end: str = "") -> list[Path]:
    """Files of the remote with `part` in their keys, ascending."""
    remote = base / "remote"
    found = [each for each in remote.rglob("*") if each.is_file() and each.relative_to(remote).parts[0][0] != "."]
    return sorted(each for each in found if part in each.as_posix() and each.suffix == end)


def hot_goes_on(log: Log, expected: list[bytes]) -> None:
    """Appends and reads of what this disk has: nothing acked is lost."""
    log.topic("orders").append([b"after"])
    log.topic("orders").seal()
    hot = log.topic("orders").read(log.topic("orders").inner.hot_floor)
    assert [each.value for each in hot] == [*expected, b"after"]


# ---------------------------------------------------------------- another remote


def test_the_remote_url_changes_after_an_offload(tmp_path: Path) -> None:
    """Somebody edits the remote URL in seglog.toml to an empty place after a topic was offloaded.

    Outcome: `OtherRemote`. Nothing is sent, and no hot copy goes. With the old URL the offload completes.
    """
    shipped(tmp_path)
    with attached(tmp_path, (tmp_path / "other").as_uri()) as (log, archive):
        log.topic("orders").append([b"after"])
        log.topic("orders").seal()
        for drop_hot in (False, True):
            with pytest.raises(OtherRemote, match="nothing was sent"):
                archive.offload("orders", drop_hot=drop_hot)
    assert not (tmp_path / "other").exists() or tree(tmp_path / "other") == {}
    with attached(tmp_path) as (log, archive):
        archive.offload("orders", drop_hot=True)
        assert [each.value for each in log.topic("orders").read()] == [*numbered(40), b"after"]


def test_the_remote_url_changes_after_the_hot_copies_went(tmp_path: Path) -> None:
    """Somebody edits the remote URL after the records left the disk, and reads them.

    Outcome: `NoSuchObject` with a hint to check the URL. Appends work. With the old URL all records are read.
    """
    shipped(tmp_path, drop_hot=True)
    with attached(tmp_path, (tmp_path / "other").as_uri()) as (log, _):
        with pytest.raises(NoSuchObject) as missing:
            list(log.topic("orders").read())
        assert "check the remote URL" in str(missing.value.hint)
        hot_goes_on(log, [])
    with attached(tmp_path) as (log, _):
        assert [each.value for each in log.topic("orders").read()] == [*numbered(40), b"after"]


def test_an_operator_empties_the_remote(tmp_path: Path) -> None:
    """An operator removes every object of the remote while the hot copies are still on the disk.

    Outcome: `OtherRemote`. No hot copy goes, so no record is lost.
    """
    shipped(tmp_path)
    shutil.rmtree(tmp_path / "remote")
    with attached(tmp_path) as (log, archive):
        hot_goes_on(log, numbered(40))
        with pytest.raises(OtherRemote):
            archive.offload("orders", drop_hot=True)
        assert len(list(log.topic("orders").read())) == 41


@pytest.fixture
def yesterday(tmp_path: Path) -> Callable[[], None]:
    """Twenty records, then a backup of the remote, then twenty more. The call puts the backup in the remote's place."""
    shipped(tmp_path, count=2)
    shutil.copytree(tmp_path / "remote", tmp_path / "backup")
    shipped(tmp_path, count=2, first=21)

    def restore() -> None:
        shutil.rmtree(tmp_path / "remote")
        (tmp_path / "backup").rename(tmp_path / "remote")

    return restore


def test_an_operator_restores_the_remote_to_yesterday(tmp_path: Path, yesterday: Callable[[], None]) -> None:
    """An operator puts an older copy of all objects into the remote.

    Outcome: `RemoteBehind` at the next offload, sync or reset after an opening. No commit is made above the hole, and
    no hot copy goes.
    """
    yesterday()
    before = tree(tmp_path / "remote")
    with attached(tmp_path) as (log, archive):
        hot_goes_on(log, numbered(40))
        for act in (
            lambda: archive.offload("orders"),
            lambda: archive.offload("orders", drop_hot=True),
            lambda: archive.replication.sync("orders"),
            lambda: archive.replication.reset("orders", discard=True),
        ):
            with pytest.raises(RemoteBehind, match="lacks commit lsn 4 of orders"):
                act()
        assert len(list(log.topic("orders").read())) == 41
    assert tree(tmp_path / "remote") == before


def test_a_replica_is_ahead_of_a_remote_that_was_restored(tmp_path: Path, yesterday: Callable[[], None]) -> None:
    """An operator puts an older copy into the remote, which a second directory follows.

    Outcome: `RemoteBehind` at its next sync. It does not become the writer either.
    """
    with attached(tmp_path, name="second") as (_, second):
        second.replication.sync("orders")
    yesterday()
    with attached(tmp_path, name="second") as (_, second):
        for act in (second.replication.sync, second.open_for_append, second.replication.take_over):
            with pytest.raises(RemoteBehind):
                act("orders")
    assert values(tmp_path / "data") == numbered(40)


# ---------------------------------------------------------------- objects that go or change


def test_the_newest_commit_is_deleted(tmp_path: Path) -> None:
    """An operator deletes the newest commit of a topic from the remote.

    Outcome: `RemoteBehind` at the next offload after an opening; no hot copy goes. `verify --remote` in that directory
    names the commit.
    """
    shipped(tmp_path)
    gone = objects(tmp_path, "/log/")[0]
    gone.unlink()
    with attached(tmp_path) as (log, archive):
        hot_goes_on(log, numbered(40))
        with pytest.raises(RemoteBehind):
            archive.offload("orders", drop_hot=True)
        assert len(list(log.topic("orders").read())) == 41
    done = command("--remote", (tmp_path / "remote").as_uri(), "verify", "--remote", directory=tmp_path / "data")
    assert (done.returncode, gone.name.encode() in done.stdout) == (5, True)


def test_a_commit_in_the_middle_is_deleted(tmp_path: Path) -> None:
    """An operator deletes a commit in the middle of a topic's history.

    Outcome: the hot copies of its records stay: the release ends with `NoSuchObject`. `verify --remote` names it,
    and GC by another directory deletes nothing of the topic.
    """
    shipped(tmp_path)
    gone = objects(tmp_path, "/log/")[1]
    gone.unlink()
    with attached(tmp_path) as (log, archive):
        with pytest.raises(NoSuchObject, match=gone.name):
            archive.offload("orders", drop_hot=True)
        hot_goes_on(log, numbered(20, 21))
        assert len(list(log.topic("orders").read())) == 41
    with attached(tmp_path, name="second") as (_, second):
        assert second.upkeep.collect(retain_s=0, grace_s=0).blocked
        assert len(objects(tmp_path, "/segments/")) == 4
    done = command("--remote", (tmp_path / "remote").as_uri(), "verify", "--remote", directory=tmp_path / "data")
    assert done.returncode == 5
    assert gone.name.encode() in done.stdout + done.stderr


def test_a_data_object_is_deleted_whose_hot_copy_is_there(tmp_path: Path) -> None:
    """A lifecycle rule of the bucket deletes an old data object while its hot copy is still on the disk.

    Outcome: the release ends with `NoSuchObject`, and the hot copy stays. No record is lost.
    """
    shipped(tmp_path)
    objects(tmp_path, "/segments/")[1].unlink()
    with attached(tmp_path) as (log, archive):
        with pytest.raises(NoSuchObject) as missing:
            archive.offload("orders", drop_hot=True)
        assert "verify --remote" in str(missing.value.hint)
        assert [each.value for each in log.topic("orders").read()] == numbered(40)


def test_a_lifecycle_rule_deleted_old_segments(tmp_path: Path) -> None:
    """A lifecycle rule of the bucket deletes the oldest data object after its hot copy went.

    Outcome: a read of its records ends with `NoSuchObject`, not with fewer records. All others are read.
    """
    shipped(tmp_path, drop_hot=True)
    objects(tmp_path, "/segments/")[0].unlink()
    with attached(tmp_path) as (log, archive):
        with pytest.raises(NoSuchObject):
            list(log.topic("orders").read())
        with pytest.raises(NoSuchObject):
            list(archive.read("orders"))
        assert [each.value for each in log.topic("orders").read(11)] == numbered(30, 11)
        hot_goes_on(log, [])


def test_an_index_object_is_deleted(tmp_path: Path) -> None:
    """An operator deletes an index object, which looks small and useless, after the hot copies went.

    Outcome: a read of its records ends with `NoSuchObject`, not with fewer records. All others are read.
    """
    shipped(tmp_path, drop_hot=True)
    objects(tmp_path, "/segments/", ".index")[1].unlink()
    with attached(tmp_path) as (log, _):
        found: list[bytes] = []
        with pytest.raises(NoSuchObject, match="index"):
            found.extend(each.value for each in log.topic("orders").read())
        assert found in ([], numbered(10))
        assert [each.value for each in log.topic("orders").read(21)] == numbered(20, 21)


def test_a_ref_is_deleted(tmp_path: Path) -> None:
    """An operator deletes the ref of a topic, and a second directory looks for the topic.

    Outcome: the writer is refused with `OtherRemote`. Reads work, and no hot copy goes.
    """
    shipped(tmp_path)
    shutil.rmtree(tmp_path / "remote" / "refs")
    with attached(tmp_path) as (log, archive):
        hot_goes_on(log, numbered(40))
        with pytest.raises(OtherRemote):
            archive.offload("orders", drop_hot=True)
        assert len(list(log.topic("orders").read())) == 41


def test_a_data_object_is_replaced_by_another_one(tmp_path: Path) -> None:
    """An operator copies a data object of the topic over another one of the same size.

    Outcome: the read-back before a release finds it (`InvalidObject`), and the hot copy stays. A read by another
    directory ends with `InvalidChunk`, never with records of the other object.
    """
    with attached(tmp_path) as (log, _):
        log.create_topic("orders", TopicConfig(attributes={"codec": "none"}))  # zstd may differ by a byte
    shipped(tmp_path, count=4, first=11)
    one, other = objects(tmp_path, "/segments/")[1:3]
    assert one.stat().st_size == other.stat().st_size
    other.write_bytes(one.read_bytes())
    with attached(tmp_path) as (log, archive):
        with pytest.raises(InvalidObject, match=r"its bytes are not|is not what"):
            archive.offload("orders", drop_hot=True)
        assert [each.value for each in log.topic("orders").read()] == numbered(40, 11)
    with attached(tmp_path, name="second") as (_, second), pytest.raises(InvalidChunk):
        list(second.read("orders"))


def test_a_data_object_is_truncated(tmp_path: Path) -> None:
    """A copy of the remote by hand ended early, and a data object is shorter than it was.

    Outcome: the read-back before a release finds it (`InvalidObject`), and the hot copy stays.
    """
    shipped(tmp_path)
    cut = objects(tmp_path, "/segments/")[1]
    os.truncate(cut, cut.stat().st_size - 20)
    with attached(tmp_path) as (log, archive):
        with pytest.raises(InvalidObject, match="were expected"):
            archive.offload("orders", drop_hot=True)
        assert [each.value for each in log.topic("orders").read()] == numbered(40)


# ---------------------------------------------------------------- shared remotes


def test_two_directories_share_a_remote_and_a_topic(tmp_path: Path) -> None:
    """Two programs with a data directory each write to one topic of one remote, and do not know of each other.

    Outcome: the second offload is refused with `Diverged`. Its directory keeps all its records, and `reset --as` saves
    them as a branch.
    """
    shipped(tmp_path)
    filled(tmp_path / "second", 3, seal=True)
    with attached(tmp_path, name="second") as (log, second):
        for drop_hot in (False, True):
            with pytest.raises(Diverged, match="is another writer's commit"):
                second.offload("orders", drop_hot=drop_hot)
        assert [each.value for each in log.topic("orders").read()] == numbered(3)
    with attached(tmp_path) as (_, archive):
        assert [each.value for each in archive.read("orders")] == numbered(40)


def test_a_prefix_lies_within_another_ones(tmp_path: Path) -> None:
    """Two programs have the remotes `acme` and `acme/emea`, so one prefix lies in the other.

    Outcome: nothing is lost in either; each shows only its own topics, and GC of the outer one takes nothing.
    """
    inner = (tmp_path / "remote" / "emea").as_uri()
    shipped(tmp_path, drop_hot=True)
    with attached(tmp_path, inner, "second") as (log, second):
        log.topic("orders").append(numbered(3))
        log.topic("orders").seal()
        second.offload("orders", drop_hot=True)
    with attached(tmp_path) as (log, archive):
        assert archive.branches.remote_names() == ["orders"]
        archive.upkeep.collect()
        assert [each.value for each in archive.read("orders")] == numbered(40)
    with attached(tmp_path, inner, "second") as (log, second):
        assert [each.value for each in second.read("orders")] == numbered(3)


def test_a_topic_is_deleted_by_another_directory(tmp_path: Path) -> None:
    """A second directory deletes the branch of a topic in the remote that the first one has open and writes to.

    Outcome: the first is refused at its next opening with `NameDeleted`, which says how the branch comes back. It keeps
    its records.
    """
    shipped(tmp_path, count=1)
    with attached(tmp_path) as (log, archive):
        archive.restore("orders", to="head", name="fix")
        archive.open_for_append("orders@fix").append([b"mine"])
        log.topic("orders@fix").seal()
        archive.offload("orders@fix")
    with attached(tmp_path, name="second") as (_, second):
        second.branches.delete_branch("orders", "fix")
    with attached(tmp_path) as (log, archive):
        log.topic("orders@fix").append([b"after"])
        log.topic("orders@fix").seal()
        with pytest.raises(NameDeleted):
            archive.offload("orders@fix", drop_hot=True)
        assert [each.value for each in log.topic("orders@fix").read()][-2:] == [b"mine", b"after"]
        archive.branches.undelete_branch("orders", "fix")
        archive.offload("orders@fix", drop_hot=True)
        assert [each.value for each in archive.read("orders@fix")] == [*numbered(10), b"mine", b"after"]


# ---------------------------------------------------------------- a store that refuses


def test_the_bucket_does_not_exist(tmp_path: Path, s3_environment: str) -> None:
    """The bucket in the remote URL has a typing error.

    Outcome: `NoSuchBucket`. Appends and hot reads work. Nothing is taken for an empty remote.
    """
    filled(tmp_path / "data", seal=True)
    with attached(tmp_path, "s3://no-such-bucket-here/acme") as (log, archive):
        with pytest.raises(NoSuchBucket, match="no-such-bucket-here"):
            archive.offload("orders")
        with pytest.raises(NoSuchBucket):
            archive.branches.remote_names()
        hot_goes_on(log, numbered(10))


def test_the_remote_does_not_answer(tmp_path: Path, s3_remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network to the remote is down: its port refuses connections.

    Outcome: `StoreUnreachable` for what needs the remote. Appends and hot reads work, and the next try completes.
    """
    shipped(tmp_path, s3_remote, count=1, drop_hot=True)
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
        with attached(tmp_path, s3_remote) as (log, archive):
            hot_goes_on(log, [])
            for act in (lambda: list(log.topic("orders").read()), lambda: archive.offload("orders", drop_hot=True)):
                with pytest.raises(StoreUnreachable):
                    act()
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with attached(tmp_path, s3_remote) as (log, archive):
        archive.offload("orders", drop_hot=True)
        assert [each.value for each in log.topic("orders").read()] == [*numbered(10), b"after"]


def test_the_credentials_are_wrong(tmp_path: Path, s3_environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials are wrong: the store answers every request with 403.

    Outcome: `AccessDenied`, never "no such topic". Appends and hot reads work, and no hot copy goes.
    """
    filled(tmp_path / "data", seal=True)
    with closing(ScriptedS3()) as script:
        monkeypatch.setenv("AWS_ENDPOINT_URL", script.url)
        script.answers = [(403, "InvalidAccessKeyId")] * 1000
        with attached(tmp_path, "s3://bucket/acme") as (log, archive):
            for act in (
                lambda: archive.offload("orders", drop_hot=True),
                lambda: list(archive.read("elsewhere")),
                archive.branches.remote_names,
                lambda: archive.branches.list("orders"),
            ):
                with pytest.raises(AccessDenied, match="InvalidAccessKeyId"):
                    act()
            hot_goes_on(log, numbered(10))


def test_the_policy_of_the_bucket_allows_reads_only(
    tmp_path: Path, s3_remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy of the bucket takes the right to write away: reads work, and each PUT is answered with 403.

    Outcome: `AccessDenied` for the offload, and no hot copy goes. Cold reads work. With the right it completes.
    """
    shipped(tmp_path, s3_remote, count=1, drop_hot=True)
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    denied = [HttpFault("AccessDenied", kind=f"PUT {kind}", lasts=True) for kind in ("data", "index", "commit")]
    with Front(endpoint, denied) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        with attached(tmp_path, s3_remote) as (log, archive):
            hot_goes_on(log, [])
            with pytest.raises(AccessDenied):
                archive.offload("orders", drop_hot=True)
            assert [each.value for each in log.topic("orders").read()] == [*numbered(10), b"after"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with attached(tmp_path, s3_remote) as (log, archive):
        archive.offload("orders", drop_hot=True)
        assert [each.value for each in log.topic("orders").read()] == [*numbered(10), b"after"]


def test_the_remote_is_a_file(tmp_path: Path) -> None:
    """The path of a `file://` remote is a file, not a directory.

    Outcome: `StoreUnreachable`, never "no such topic". The file keeps its bytes.
    """
    filled(tmp_path / "data", seal=True)
    (tmp_path / "remote").write_bytes(b"precious")
    with attached(tmp_path) as (log, archive):
        for act in (lambda: archive.offload("orders", drop_hot=True), lambda: list(archive.read("elsewhere"))):
            with pytest.raises(StoreUnreachable, match="a file stands where its directory should be"):
                act()
        hot_goes_on(log, numbered(10))
    assert (tmp_path / "remote").read_bytes() == b"precious"


# ---------------------------------------------------------------- who writes


@pytest.mark.parametrize("made_by", ["undo", "init --from", "follow", "recover"])
def test_a_program_appends_to_a_topic_that_its_directory_follows(tmp_path: Path, made_by: str) -> None:
    """A program appends in Python after `init --from`, `follow` or `recover`, or an undo in such a directory.

    Outcome: refused with `WrittenElsewhere`, also without the remote. The error names the call to make.
    No second history begins at seq 1.
    """
    shipped(tmp_path, count=1)
    data, url = tmp_path / "new", (tmp_path / "remote").as_uri()
    words = {"recover": ("recover", url, str(data)), "follow": ("follow", url, str(data), "--once")}
    if made_by == "undo":
        with attached(tmp_path) as (_, archive):
            lsn = archive.delete("orders", before=5).lsn
    assert command(*words.get(made_by, ("init", "--from", url)), directory=data).returncode == 0
    if made_by == "undo":
        assert command("--remote", url, "undo", "orders", f"lsn:{lsn}", directory=data).returncode == 0
    with seglog.open(data, create=False) as log, pytest.raises(WrittenElsewhere):
        log.topic("orders").append([b"second history"])
    with attached(tmp_path, name=data.name) as (log, archive):
        with pytest.raises(WrittenElsewhere, match="this directory follows orders") as refused:
            log.topic("orders").append([b"second history"])
        assert "archive.open_for_append('orders')" in str(refused.value.hint)
        assert archive.open_for_append("orders").append([b"after"]) == range(11, 12)
        assert [each.value for each in archive.read("orders")] == [*numbered(10), b"after"]


def test_a_program_goes_on_after_another_directory_took_its_topic_over(tmp_path: Path) -> None:
    """A program goes on appending after another directory took the topic over, and an offload said so.

    Outcome: refused with `WrittenElsewhere`, unless `append_when_fenced` allows it. `reset --as` keeps what is here.
    """
    shipped(tmp_path, count=1)
    with attached(tmp_path, name="other") as (_, other):
        other.replication.take_over("orders").append([b"theirs"])
    with attached(tmp_path) as (log, archive):
        log.topic("orders").append([b"before it knows"])
        log.topic("orders").seal()
        with pytest.raises(Fenced):
            archive.offload("orders")
    with seglog.open(tmp_path / "data") as log, pytest.raises(WrittenElsewhere, match="has taken orders over"):
        log.topic("orders").append([b"after it knows"])
    with seglog.open(tmp_path / "data", settings=LogSettings(append_when_fenced=True)) as log:
        log.topic("orders").append([b"as it is told"])
    with attached(tmp_path) as (log, archive):
        archive.replication.reset("orders", as_branch="mine")
        mine = [each.value for each in archive.read("orders@mine")]
        assert mine == [*numbered(10), b"before it knows", b"as it is told"]


@pytest.mark.parametrize("what", ["undo", "promote"])
def test_a_client_repeats_an_append_after_an_undo_or_a_promotion(tmp_path: Path, what: str) -> None:
    """A client repeats an append under its key, or a batch of a producer, after an undo or a promotion here.

    Outcome: the records are there once, and the repetition gets their seqs.
    """
    batch = ProducerBatch("shop", 0, 0)
    with attached(tmp_path) as (log, archive):
        log.topic("orders").append(numbered(2), tag="wrong")
        log.topic("orders").seal()
        archive.offload("orders")
        lsn = archive.delete("orders", tag="wrong").lsn
        assert lsn is not None
        if what == "promote":
            archive.restore("orders", to="head~1", name="good")
        log.topic("orders").append([b"a", b"b"], key="order-4711")
        log.topic("orders").append([b"c"], producer=batch)
        if what == "undo":
            archive.history.undo_removal("orders", lsn)
        else:
            archive.branches.promote_branch("orders", "good", carry=True)
        topic = archive.open_for_append("orders")
        assert topic.append_once([b"a", b"b"], key="order-4711") == Appended(range(3, 5), True)
        assert topic.append_once([b"c"], producer=batch) == Appended(range(5, 6), True)
        assert [each.value for each in archive.read("orders")] == [*numbered(2), b"a", b"b", b"c"]
