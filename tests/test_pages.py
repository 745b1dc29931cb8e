"""The Python examples of the README and of docs/ do what they say, with a directory in the place of the bucket."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import offload
import seglog
from catalog.format.commit import Codec
from catalog.format.keys import Key
from catalog.objects import LocalStore
from scripts.snippets import ROOT, programs
from tests.daemons import served
from tests.offload.samples import Sample, encode_object, frames_of_samples

PROGRAMS = programs()
#: tests/offload/spark/test_pages.py runs these.
_SPARK = {"docs/spark.md", "docs/spark/README.md", "docs/start/README.md"}
_APART = {"docs/client.md": 5}  # pages whose blocks run one by one: so many


class _Enough(Exception):
    """The program printed all that the test waits for."""


def run_blocks(
    page: str,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    blocks: slice = slice(None),
    lines: int | None = None,
    after: tuple[int, Callable[[], object]] | None = None,
) -> None:
    """Run Python blocks of a page as one program in `directory`. End it when it has printed so many lines.

    `after` is what another program does once so many lines are there.
    """
    program = "".join(PROGRAMS[page][blocks]).replace("s3://my-bucket/acme", f"{directory.as_uri()}/remote")
    monkeypatch.chdir(directory)
    printed = 0

    def show(*items: object) -> None:
        nonlocal printed
        print(*items)
        printed += 1
        if after is not None and printed == after[0]:
            after[1]()
        if printed == lines:
            raise _Enough

    with suppress(_Enough):
        exec(compile(program, page, "exec"), {"print": show})  # noqa: S102
    assert lines in {None, printed}


def test_each_block_of_python_has_a_test() -> None:
    """A page runs as a whole, or its blocks are in `_APART`."""
    run_there = ("docs/stories/", "docs/start/", "docs/concepts/", "docs/operate/", "docs/restore.md")
    # by tests/cli/test_stories.py
    stories = {page for page in PROGRAMS if page.startswith(run_there) and not page.endswith("README.md")}
    text = Path(__file__).read_text()
    for page, blocks in PROGRAMS.items():
        fences = re.findall(r"^ *(?:```|~~~) *py.*$|^ *>>> ", (ROOT / page).read_text(), re.MULTILINE | re.IGNORECASE)
        assert len(fences) == len(blocks), f"scripts/snippets.py does not see all Python of {page}"
        if page in _APART:
            assert len(blocks) == _APART[page], f"{page} has another number of blocks: test each"
        elif page not in stories | _SPARK:
            assert f'run_blocks("{page}", tmp_path, monkeypatch)' in text
    others = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")} - PROGRAMS.keys()
    assert [page for page in sorted(others) if re.search(r"^ *(```|~~~) *py", (ROOT / page).read_text(), re.M)] == []


def test_the_readme_appends_deletes_and_restores_in_ten_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_blocks("README.md", tmp_path, monkeypatch)
    assert capsys.readouterr().out == "[b'first', b'second', b'third']\n"
    assert sum(1 for line in PROGRAMS["README.md"][0].splitlines() if line) == 10
    with seglog.open(tmp_path / "my-log") as log:
        assert [record.value for record in log.topic("orders").read()] == [b"third"]


def test_the_follower_of_the_first_daemon_passes_a_gap_and_stays_for_new_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append([b"kept"])
        log.topic("orders").append([b"lost"], durability="ephemeral")
    [program] = PROGRAMS["docs/start/a-daemon.md"]
    endless = program.replace("    orders.evict(before=2)\n", "").replace(", timeout_s=1", "")
    assert len(program) - len(endless) == len("    orders.evict(before=2)\n, timeout_s=1")
    with served(tmp_path / "data", "") as daemon:
        address = f"http://127.0.0.1:{daemon.port}"
        monkeypatch.setitem(PROGRAMS, "docs/start/a-daemon.md", [endless.replace("http://127.0.0.1:7373", address)])
        run_blocks("docs/start/a-daemon.md", tmp_path, monkeypatch, lines=5)
    gap = "retention took the records 2 to 2"
    shown = ["range(3, 5)", "1 b'kept'", gap, "3 b'order 3'", "4 b'order 4'"]
    assert capsys.readouterr().out.splitlines() == shown


def test_the_example_of_errors_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_blocks("docs/errors.md", tmp_path, monkeypatch)
    assert f"```text\n{capsys.readouterr().out}```" in (ROOT / "docs" / "errors.md").read_text()


def test_the_examples_of_safe_appends_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_blocks("docs/append-safely.md", tmp_path, monkeypatch)
    shown = re.findall(
        r"^```text\n(.*?)^```$", (ROOT / "docs" / "append-safely.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert capsys.readouterr().out == "".join(shown)


def test_the_example_of_replicas_recovers_takes_over_and_resets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with seglog.open(tmp_path / "data") as log, offload.attach(log, f"{tmp_path.as_uri()}/remote") as archive:
        log.topic("orders").append([b"one"])
        log.topic("orders").seal()
        archive.offload("orders")
    run_blocks("docs/replicas.md", tmp_path, monkeypatch)
    recovered, state = capsys.readouterr().out.splitlines()
    assert recovered.startswith("Recovered(")
    assert state == "1+1 r2"


def test_the_example_of_pulsar_reads_the_entries_of_an_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = encode_object(frames_of_samples([Sample(b"%d" % n) for n in range(102)]), Codec.NONE)
    store = LocalStore(tmp_path / "pulsar")
    for name, body in (("9a0c-ledger-1234", made.data), ("9a0c-ledger-1234-index", made.index.body)):
        store.put(Key(name), body, {})
    [block] = PROGRAMS["docs/pulsar.md"]
    monkeypatch.setitem(PROGRAMS, "docs/pulsar.md", [block.replace("s3://pulsar", (tmp_path / "pulsar").as_uri())])
    run_blocks("docs/pulsar.md", tmp_path, monkeypatch)
    entries = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in entries] == ["100", "101"]


def test_the_example_of_the_journal_finds_its_items_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_blocks("docs/journal.md", tmp_path, monkeypatch)
    got, *replayed, sections = capsys.readouterr().out.splitlines()
    assert got == "b'job 7 begins'"
    assert [re.sub(r" \d+ ", " ", line, count=1) for line in replayed] == [
        "1 b'job 7 begins'",
        "1 b'job 7 is done'",
        "2 b'job 8 begins'",
    ]
    assert sections == "[2]"


def test_the_example_of_cold_segments_reads_what_went_to_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_blocks("docs/warm-segments.md", tmp_path, monkeypatch)
    assert capsys.readouterr().out == "3500 records\n"
    moved = sorted((tmp_path / "remote" / "cold" / "machine-1").rglob("*.data"))
    assert moved
    assert not (tmp_path / "data" / "topics" / "00000001" / moved[0].name).exists()


def test_the_example_of_the_client_appends_and_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seglog.open(tmp_path / "data").close()
    with served(tmp_path / "data", ""):
        run_blocks("docs/client.md", tmp_path, monkeypatch, blocks=slice(0, 1))
    assert capsys.readouterr().out.splitlines() == [
        "range(1, 3)",
        "1000 records are in",
        "1 b'one'",
        "2 b'two'",
        "1002",
    ]


def test_the_example_of_several_topics_yields_each_record_with_its_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append([b"one", b"two"])
        log.topic("web").append([b"before the head"])
    program = PROGRAMS["docs/client.md"][4]
    with served(tmp_path / "data", ""):
        monkeypatch.setitem(PROGRAMS, "docs/client.md", ["import seglog\n", program])
        run_blocks("docs/client.md", tmp_path, monkeypatch)
    assert capsys.readouterr().out.splitlines() == ["orders 1 b'one'", "orders 2 b'two'"]


def test_the_example_of_one_program_runs_on_a_log_and_on_a_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seglog.open(tmp_path / "data").close()
    with served(tmp_path / "data", ""):
        monkeypatch.setitem(PROGRAMS, "docs/client.md", ["import seglog\n", PROGRAMS["docs/client.md"][1]])
        run_blocks("docs/client.md", tmp_path, monkeypatch)
    assert capsys.readouterr().out.splitlines() == ["2", "2"]


def test_the_example_of_a_restore_runs_on_a_log_and_on_a_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = (tmp_path / "remote").as_uri()
    with seglog.open(tmp_path / "data") as log, offload.attach(log, remote) as archive:
        log.topic("orders").append([b"one", b"two"])
        log.topic("orders").seal()
        archive.offload("orders")
    program = PROGRAMS["docs/client.md"][2]
    call = "with seglog.connect('unix:data') as client:\n    retry_from(client.archive, client, 1)\n"
    with served(tmp_path / "data", remote):
        monkeypatch.setitem(PROGRAMS, "docs/client.md", ["import seglog\n", program, call])
        run_blocks("docs/client.md", tmp_path, monkeypatch)
    call = (
        "with seglog.open('data') as log, offload.attach(log, 'REMOTE') as archive:\n    retry_from(archive, log, 2)\n"
    )
    monkeypatch.setitem(
        PROGRAMS, "docs/client.md", ["import offload, seglog\n", program.replace("retry", "again"), call]
    )
    PROGRAMS["docs/client.md"][2] = call.replace("REMOTE", remote).replace("retry", "again")
    run_blocks("docs/client.md", tmp_path, monkeypatch)
    with seglog.open(tmp_path / "data") as log:
        assert [record.value for record in log.topic("orders@again").read(3)] == [b"another try"]


def test_the_example_of_a_follower_keeps_an_exact_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append([b"one", b"two", b"three"])
    with served(tmp_path / "data", ""), seglog.connect(f"unix:{tmp_path / 'data'}") as other:
        orders = other.topic("orders")

        def truncate() -> None:
            orders.truncate(2)
            orders.append([b"four"])

        monkeypatch.setitem(PROGRAMS, "docs/client.md", ["import seglog\n", *PROGRAMS["docs/client.md"][3:]])
        run_blocks("docs/client.md", tmp_path, monkeypatch, lines=5, after=(3, truncate))
    copied = [f"{count} records, the last one b'{value}'" for count, value in ((1, "one"), (2, "two"), (3, "three"))]
    assert capsys.readouterr().out.splitlines() == [*copied, "1 records are left", "2 records, the last one b'four'"]
