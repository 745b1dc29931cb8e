"""`python -m offload.spark.jobs JOB REMOTE [options]`: the jobs from a shell, or from spark-submit.

Results go to standard output: a table for people, or with `--json` each row as an object on its own line, and then a
line with the job's other numbers. An error is one line on standard error. Exit codes are those of the command line: 0
done, 1 failed, 2 usage, 3 not found, 4 diverged or conflict, 5 corruption found.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from offload.errors import InvalidOption, blocked_volumes, damage_found
from offload.moment import Moment
from offload.spark.jobs.compaction import compact
from offload.spark.jobs.gc_plan import GcPlanResult, plan_gc
from offload.spark.jobs.object_check import VerifyResult, verify
from offload.spark.jobs.parquet_export import export
from offload.spark.jobs.tag_statistics import statistics
from offload.spark.option_texts import OptionTexts
from offload.spark.session import new_session
from seglog.errors import SeglogError

_EXIT_INTERRUPTED = 130
_ROLE = "SEGLOG_TENANT_ROLE_ARN"
_JOBS: Mapping[str, Callable[..., Any]] = {
    "statistics": statistics,
    "verify": verify,
    "export": export,
    "gc": plan_gc,
    "compact": compact,
}


def main(words: Sequence[str] | None = None, spark: Any = None) -> int:
    """Run a job, print its result, and return the exit code. Without `spark`, start a session of its own."""
    given = vars(_parser().parse_args(words))
    job, as_json, debug = given.pop("job"), given.pop("json"), given.pop("debug")
    every = given.pop("every", True)
    try:
        _refuse_role(os.environ)
        result = _JOBS[job](spark or _session(job, given["dry_run"]), **given)
        shown = result if every or given["dry_run"] else replace(result, rows=result.findings)
        sys.stdout.writelines(f"{line}\n" for line in _result_lines(shown, as_json=as_json))
        _check(result, given["remote"])
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _reported(error)
    return 0


def _check(result: Any, remote: str) -> None:
    """Raise an error if the job found damage."""
    if isinstance(result, VerifyResult) and result.findings:
        raise damage_found(len(result.findings), remote, "keep the objects, and compare with a backup or a replica")
    if isinstance(result, GcPlanResult) and result.blocked:
        raise blocked_volumes(result.blocked)


def _refuse_role(variables: Mapping[str, str]) -> None:
    """Raise `InvalidOption` if the environment has a role for the remote, which executors could not take."""
    if variables.get(_ROLE):
        hint = "unset it, and let a profile run `seglog tenant credentials` (docs/spark.md)"
        raise InvalidOption(_ROLE, "a job takes the credentials of an AWS profile and no role", hint=hint)


def _session(job: str, dry_run: bool) -> Any:
    """Return the session of Spark that the environment describes. A dry run needs none, except of `gc`."""
    if dry_run and job != "gc":
        return None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return new_session("seglog jobs")


def _reported(error: Exception) -> int:
    is_ours = isinstance(error, SeglogError)
    message = str(error) if is_ours else f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    hint = getattr(error, "hint", None)
    line = f"seglog: {message}" + (f". {hint[0].upper()}{hint[1:]}" if is_ours and hint else "")
    sys.stderr.write(" ".join(line.split()) + "\n")
    return int(getattr(error, "exit_code", 1)) if is_ours else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m offload.spark.jobs",
        description="Upkeep of a remote by Spark.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 diverged or conflict, 5 corruption found.",
    )
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    found = _job(jobs, "statistics", "count records, bytes, times and seqs by topic and tag")
    _add_versions(found)
    _add_state(found)
    found = _job(jobs, "verify", "check every object of the topics, to the record")
    _add_versions(found)
    _add_state(found)
    _add_task_bytes(found)
    found.add_argument("--all", dest="every", action="store_true", help="list the good objects, too")
    found = _job(jobs, "export", "write the records that a target lacks as Parquet, by day and topic")
    found.add_argument("target", metavar="TARGET", help="file:///path or s3://bucket/prefix; it has a manifest")
    _add_versions(found)
    _add_task_bytes(found)
    found.add_argument(
        "--skip-lost", action="store_true", help="pass over records that were evicted since the last run"
    )
    found = _job(jobs, "gc", "plan the garbage of the remote; `seglog gc` deletes it later")
    found.add_argument("--window-s", type=int, default=argparse.SUPPRESS, help="the setting catalog.pitr_window_s")
    found.add_argument("--grace-s", type=int, default=argparse.SUPPRESS, help="the setting catalog.gc_grace_s")
    found.add_argument("--retain-s", type=int, help="keep so much of every topic, whatever its own window is")
    _add_state(found)
    found = _job(jobs, "compact", "merge runs of small objects, with one commit for each topic")
    _add_topics(found)
    _add_state(found)
    found.add_argument("--below", dest="below_bytes", type=_size, default=argparse.SUPPRESS, help="a small segment")
    found.add_argument("--least", type=int, default=argparse.SUPPRESS, help="the fewest segments of a merge")
    found.add_argument("--idle-s", type=int, default=argparse.SUPPRESS, help="a log that committed later is live")
    return parser


def _job(jobs: Any, name: str, told: str) -> argparse.ArgumentParser:
    """Add a job with the arguments that all jobs have."""
    found: argparse.ArgumentParser = jobs.add_parser(name, help=told, description=told.capitalize() + ".")
    found.add_argument("remote", metavar="REMOTE", help="s3://bucket/prefix or file:///path")
    found.add_argument("--dry-run", action="store_true", help="tell what the job would do, and change nothing")
    found.add_argument("--kms-key", dest="kms_key_id", default="", metavar="ID", help="the KMS key of what it writes")
    found.add_argument("--json", action="store_true", help="the result as JSON, one object a line")
    found.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return found


def _add_topics(found: argparse.ArgumentParser) -> None:
    found.add_argument("--topic", default="*", help="a topic, a list (orders,events) or a glob (ord*); default: all")
    found.add_argument("--branch", help="the branch of all these topics; default: main")


def _add_versions(found: argparse.ArgumentParser) -> None:
    _add_topics(found)
    found.add_argument("--version", help="a past state: an LSN of one topic, or tag:NAME")
    found.add_argument("--as-of", metavar="TIME", help="the state at a time")


def _add_state(found: argparse.ArgumentParser) -> None:
    found.add_argument("--state", metavar="DIR", help="a directory for finished work, so that the next run continues")


def _add_task_bytes(found: argparse.ArgumentParser) -> None:
    found.add_argument("--task-bytes", type=_size, default=argparse.SUPPRESS, help="work of a task, for example 128m")


def _size(text: str) -> int:
    try:
        return OptionTexts({"size": text}).size_bytes("size", 0)
    except InvalidOption as error:
        raise argparse.ArgumentTypeError(error.reason) from error


def _result_lines(result: Any, *, as_json: bool) -> Iterator[str]:
    """Yield the lines of a result: a dataclass with `rows`, and maybe other fields."""
    rows = [_values(row) for row in result.rows]
    rest = _values(result)
    del rest["rows"]
    if as_json:
        yield from (json.dumps(row) for row in [*rows, *([rest] if rest else [])])
        return
    yield from _table(rows)
    if rest:
        yield ", ".join(f"{name.replace('_', ' ')}: {_text(value)}" for name, value in rest.items())
    elif not rows:
        yield "nothing"


def _values(record: Any) -> dict[str, Any]:
    found = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: str(value) if isinstance(value, Moment) else value for name, value in found.items()}


def _table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    names = list(rows[0])
    cells = [[name.replace("_", " ") for name in names], *([_text(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[number]) for line in cells) for number in range(len(names))]
    is_number = [any(_counts(row[name]) for row in rows) for name in names]
    for line in cells:
        yield _line(line, widths, is_number)


def _line(cells: Iterable[str], widths: Iterable[int], is_number: Iterable[bool]) -> str:
    parts = zip(cells, widths, is_number, strict=True)
    return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in parts).rstrip()


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if _counts(value) else str(value)


if __name__ == "__main__":
    sys.exit(main())
