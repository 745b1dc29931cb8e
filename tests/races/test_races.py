"""Two calls at once end as some order of the two would, whatever the order of the threads.

topics, streams, tokens   clients of one daemon, also beside a reload (tests/races/routes.py)
commands                  each command of the daemon (tests/races/commands.py)
archives                  two data directories on one remote (tests/races/archives.py, test_archives.py)
schedules                 one seed draws each; a failure shows the line that runs it again
"""

from __future__ import annotations

import pytest

from offload.operations.command import COMMANDS as REGISTRY
from tests.races.commands import COMMANDS, paths_of
from tests.races.routes import TOPICS
from tests.races.scenes import SCENES
from tests.races.slices import SLICES, raced_slice, races
from tests.work import tell


@pytest.mark.parametrize(("name", "amount", "part"), [*races(*(name for name in SLICES if name != "archives"))])
def test_two_calls_at_once_end_as_one_after_the_other(name: str, amount: int, part: str) -> None:
    tell(raced_slice(name, amount, part))


def test_each_command_and_each_scene_has_races() -> None:
    assert set(SLICES) == set(SCENES)
    assert paths_of({**COMMANDS, **TOPICS}) == set(REGISTRY)
