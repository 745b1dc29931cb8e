"""Run a target of `fuzz_targets` under atheris, guided by coverage: `python -m tests.offload.fuzz NAME RUNS DIRECTORY`.

The directory keeps the inputs that the fuzzer finds interesting, and the inputs that fail. The exit code is 0 if no
input fails. The fuzzer instruments only seglog's decoders, because all of Python takes minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["offload", "seglog.format.frame"]):
    from tests.offload.fuzz_targets import SEEDS, run

LIMITS = ("-timeout=20", "-rss_limit_mb=1024", "-malloc_limit_mb=256", "-max_len=8192")


def main(name: str, runs: int, directory: Path) -> None:
    for number, seed in enumerate(SEEDS[name]):
        (directory / f"seed-{number}").write_bytes(seed)
    corpus = str(directory)
    arguments = [sys.argv[0], *LIMITS, f"-runs={runs}", f"-artifact_prefix={corpus}/", corpus]
    atheris.Setup(arguments, lambda data: run(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
