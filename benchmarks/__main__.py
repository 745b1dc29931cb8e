"""`python -m benchmarks list | charts`, `python -m benchmarks NAME... [--json | --markdown] [--quick]`."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from benchmarks import charts
from benchmarks.document import RESULTS, put_in
from benchmarks.options import Options
from benchmarks.report import Report

NAMES = (
    "append",
    "durability",
    "read",
    "deletes",
    "capped",
    "topics",
    "recovery",
    "memory",
    "cold-trouble",
    "cold-scan",
    "cold-point",
    "offload",
    "append-while-offloading",
    "gc-plan",
    "catalog",
    "spark-scan",
    "spark-points",
    "spark-plan",
    "spark-write",
    "cli",
    "cli-large",
    "bulk",
    "http-append",
    "http-follow",
    "delivery",
    "queues",
    "routers",
    "http-body",
    "small-streams",
    "tenant-credentials",
    "proxy",
)


class _Benchmark(Protocol):
    """A module of this package that measures something."""

    SUMMARY: str

    def run(self, options: Options) -> Report: ...


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.names == ["list"]:
        for name in NAMES:
            print(f"{name:<26}{_benchmark(name).SUMMARY}")
        return 0
    if given.names == ["charts"]:
        charts.write()
        return 0
    options = _options(given)
    options.directory.mkdir(parents=True, exist_ok=True)
    for name in NAMES if given.names == ["all"] else given.names:
        report = _benchmark(name).run(options)
        print(report.as_json() if given.json else report.as_text(), flush=True)
        if given.markdown:
            put_in(RESULTS, report)
    if given.markdown:
        charts.write()
    return 0


def _options(given: argparse.Namespace) -> Options:
    options = Options.smoke(given.dir) if given.quick else Options(directory=given.dir)
    if given.rounds is not None:
        options = replace(options, rounds=given.rounds)
    if given.size is not None:
        options = replace(options, size_mib=given.size)
    if given.bulk_mib is not None:
        options = replace(options, bulk_mib=given.bulk_mib)
    return options


def _parser() -> argparse.ArgumentParser:
    defaults = Options()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measures seglog and a yardstick in turns, and prints both."
    )
    choices = ("list", "charts", "all", *NAMES)
    parser.add_argument("names", nargs="+", metavar="NAME", choices=choices, help="list, charts, all, or names")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--markdown", action="store_true", help=f"also write {RESULTS}, and draw {charts.FIGURES}")
    parser.add_argument(
        "--quick", action="store_true", help="whether it runs at all, in seconds; says nothing of speed"
    )
    parser.add_argument("--rounds", type=_positive, help=f"counted rounds ({defaults.rounds})")
    parser.add_argument("--size", type=_positive, help=f"MiB of records to read, offload, scan ({defaults.size_mib})")
    parser.add_argument("--bulk-mib", type=_positive, help=f"MiB of bulk, and of Spark's scan ({defaults.bulk_mib})")
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
