"""`python -m benchmarks list`, `python -m benchmarks NAME... [--json]`."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from benchmarks.options import Options
from benchmarks.report import Report

NAMES = ("append", "read", "offload", "spark-scan")


class _Benchmark(Protocol):
    """A module of this package that measures something."""

    SUMMARY: str

    def run(self, options: Options) -> Report: ...


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.names == ["list"]:
        for name in NAMES:
            print(f"{name:<12}{_benchmark(name).SUMMARY}")
        return 0
    options = Options(directory=given.dir, rounds=given.rounds, size_mib=given.size)
    options.directory.mkdir(parents=True, exist_ok=True)
    for name in NAMES if given.names == ["all"] else given.names:
        report = _benchmark(name).run(options)
        print(report.as_json() if given.json else report.as_text(), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    defaults = Options()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measures seglog and a yardstick in turns, and prints both."
    )
    parser.add_argument("names", nargs="+", metavar="NAME", choices=("list", "all", *NAMES), help="list, all, or names")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--rounds", type=_positive, default=defaults.rounds, help="counted rounds (default %(default)s)"
    )
    parser.add_argument(
        "--size", type=_positive, default=defaults.size_mib, help="MiB of records to offload or scan (%(default)s)"
    )
    parser.add_argument(
        "--dir", type=Path, default=defaults.directory, help="where to write: the disk to measure (%(default)s)"
    )
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be positive")
    return value


def _benchmark(name: str) -> _Benchmark:
    return cast("_Benchmark", importlib.import_module(f"benchmarks.{name.replace('-', '_')}"))


if __name__ == "__main__":
    raise SystemExit(main())
