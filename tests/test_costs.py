from __future__ import annotations

import subprocess
import sys

import pytest

from tests import costs

_WORKS = """
import sys, time
while time.process_time() < 0.5:
    pass
print("done", flush=True)
sys.stdin.read()
"""


@pytest.mark.long
def test_a_process_counts_while_it_lives_and_after_it_and_one_that_was_there_before_counts_with_its_news() -> None:
    costs.begin()
    with subprocess.Popen([sys.executable, "-c", _WORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        while_alive = costs.cost()
        assert while_alive["cpu_s"] > 0.45
        assert while_alive["started"] == {"process": 1}
        costs.begin()
        assert costs.cost()["cpu_s"] < 0.4
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
        ended = costs.cost()
    assert ended["cpu_s"] < 0.4
    assert ended["started"] == {}
