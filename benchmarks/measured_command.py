"""Runs a command in a process of its own, and measures it.

mb_s       bytes of the input by time on the clock, from the start of the process to its end
cpu_s      user and system time, as the kernel counts it for the process and the children that it waited for
peak_mb    the most memory at once (VmHWM), looked up every 10 ms. Not from getrusage, where a process begins with
           the peak of the process that started it
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.runner import Figures

__all__ = ["measured"]

_MB = 1_000_000
_LOOK_S = 0.01


def measured(command: tuple[str, ...], input_bytes: int, output: Path | None = None) -> Figures:
    """Run the command with `output`, or nothing, as its standard output. Raise `RuntimeError` if it fails."""
    target = os.devnull if output is None else os.fspath(output)
    actions = [(os.POSIX_SPAWN_OPEN, 1, target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)]
    start, peak_kb = time.perf_counter(), 0
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=actions)
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            break
        peak_kb = max(peak_kb, _peak_kb(pid))
        time.sleep(_LOOK_S)
    elapsed_s = time.perf_counter() - start
    if status:
        raise RuntimeError(f"{command} ended with exit code {os.waitstatus_to_exitcode(status)}")
    return {
        "mb_s": input_bytes / _MB / elapsed_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": peak_kb / 1000,
    }


def _peak_kb(pid: int) -> int:
    """Return the peak of memory of a child before `wait`; 0 if it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)
