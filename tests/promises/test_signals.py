"""SIGINT and SIGTERM at points of a command, by failpoints: nothing is half done without a message.

The command ends with exit code 130 or 143, and one line says what to do. A second run of the command completes the
work: then each branch has the same records as after a run that no signal met. Later points of the last lines may find
the command done: it then ends with exit code 0.

Not tested here: a second signal while the command ends.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import offload
import seglog
from tests.faults.signalled import Signalled, signals
from tests.work import amounts, tell

_SIGNALS = {"SIGINT": 130, "SIGTERM": 143}
_LINES = 9_000  # more than a batch of an append


@pytest.fixture(scope="module")
def on_disk() -> Iterator[Path]:
    """Return a directory on a disk. A log in memory warns of it, which would be a line more."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def place(on_disk: Path) -> Path:
    """Prepare a topic with a bad delete, a branch of the state before it, and records that are only here.

    In the place `promoted` the branch is main.
    """
    path = on_disk
    (path / "lines").write_bytes(b"".join(b"line %d\n" % number for number in range(_LINES)))
    remote = (path / "remote").as_uri()
    with seglog.open(path / "data") as log, offload.attach(log, remote) as archive:
        topic = log.topic("t")
        topic.append([b"a", b"b"])
        topic.seal()
        archive.offload("t")
        archive.delete("t", before=2)
        archive.restore("t", to="head~1", name="good")
        topic.append([b"c", b"d"], tag="x")
        topic.seal()
    (path / "data" / "seglog.toml").write_text(f'[remote]\nurl = "{remote}"\n')
    _keep(path, "base")
    with seglog.open(path / "data") as log, offload.attach(log, remote) as archive:
        archive.branches.promote_branch("t", "good", keep="bad", leave=True)
    _keep(path, "promoted")
    return path


def _keep(path: Path, name: str) -> None:
    for each in ("data", "remote"):
        shutil.copytree(path / each, path / name / each)


@pytest.fixture(scope="module")
def signalled(place: Path) -> Iterator[Signalled]:
    with signals(place) as found:
        yield found


_COMMANDS = {
    "append": (["append", "t", "lines"], (0,)),
    "offload": (["offload", "t"], (0,)),
    "restore": (["restore", "t", "--to", "head", "--as", "back"], (0, 4)),
    "promote": (["branch", "promote", "t", "good", "--keep", "bad", "--leave"], (0, 3)),
    "undo": (["undo", "3"], (0, 4)),
    "recover": (["recover", "REMOTE", "new"], (0,)),
    "export": (["export", "t", "exported", "--part-bytes", "1"], (0,)),
}
_POINTS = 50


@amounts(1, soak=_POINTS, part=8)
@pytest.mark.parametrize("name", [name for name in _COMMANDS if name != "export"])
def test_a_signal_at_any_point_leaves_nothing_half_done(
    signalled: Signalled, place: Path, name: str, amount: int
) -> None:
    _signal(signalled, place, name, amount)


@pytest.mark.soak(part=8)
def test_a_signal_at_any_point_leaves_an_export_that_continues(signalled: Signalled, place: Path) -> None:
    _signal(signalled, place, "export", _POINTS)


def _signal(signalled: Signalled, place: Path, name: str, amount: int) -> None:
    words, fine = _COMMANDS[name]
    wanted, answers = signalled(
        place="promoted" if name == "undo" else "base",
        words=[word.replace("REMOTE", (place / "remote").as_uri()) for word in words],
        signals=list(_SIGNALS) if amount > 1 else [list(_SIGNALS)[len(name) % 2]],
        points=amount,
        looks="new" if name == "recover" else "data",
    )
    ended = 0
    for each in answers:
        where = f"{name}, {each.signal} at point {each.point}"
        assert each.code in {0, _SIGNALS[each.signal]}, f"{where}: {each}"
        if each.code:
            ended += 1
            assert each.err.count("\n") == 1, f"{where}: {each.err}"
            assert each.err.startswith(("interrupted: ", "seglog: interrupted. ")), f"{where}: {each.err}"
        else:
            assert each.err == "", f"{where}: {each.err}"
        if each.code or name not in {"append"}:
            assert each.again in fine, f"{where}: the second run: {each.again_err}"
            assert each.state == wanted, where
    tell(f"{name}: {len(answers)} signals, {ended} ended it")
    assert ended > len(answers) // 2
