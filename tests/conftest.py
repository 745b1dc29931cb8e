"""Fixtures for every test: the S3 server, a remote of each kind, no pauses between attempts, no real syncs.

The directories of the tests are in memory, if there is room: a run makes and removes some hundred thousand files.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, core, settings
from xdist.scheduler import LoadFileScheduling

from tests import costs, drawn, hangs, runs, work
from tests.faults.files import SimulatedCrash
from tests.s3_server import (
    empty_remote,
    moto_endpoint,
    one_certificate,
    s3_client,
    s3_endpoint,
    s3_environment,
    s3_remote,
)
from tests.seams.aws import remember_pure_calls
from tests.seams.log import end_work_at
from tests.seams.syncs import spare_syncs, take_memory_for_a_disk, use_real_syncs

__all__ = [
    "moto_endpoint",
    "no_pauses",
    "one_certificate",
    "real_syncs",
    "remote",
    "s3_client",
    "s3_endpoint",
    "s3_environment",
    "s3_remote",
]

#: Files that take longest, then directories. If two processes share the files, neither is idle at the end.
_LONG_FILES = [
    "test_whole_way_in_spark",
    "test_source",
    "test_both_readers",
    "test_registration",
    "test_serve",
    "test_crash_images",
    "test_topic_commands",
    "test_kill_at_every_step",
    "test_benchmarks",
    "test_simulation",
    "test_s3",
    "test_main_job",
    "test_nth_operation_fails",
    "test_store_fault_plan",
    "test_corruption_matrix",
    "test_pool",
    "test_topic_crashes",
    "test_repository",
]
#: Files that share an expensive start, here a JVM. One process of the run takes all of them.
_TOGETHER = {
    "tests/offload/spark/test_jvm_bytes.py": "judge",
    "tests/offload/spark/test_jvm_credentials.py": "judge",
    "tests/offload/spark/test_jvm_decoders.py": "judge",
    "tests/offload/spark/test_jvm_golden.py": "judge",
    "tests/offload/spark/test_jvm_ranges.py": "judge",
    "tests/promises/test_whole_way_in_spark.py": "spark",
    "tests/offload/spark/test_source.py": "spark",
    "tests/offload/spark/test_errors.py": "spark",
    "tests/offload/spark/test_both_readers.py": "spark",
    "tests/offload/spark/test_registration.py": "spark",
    "tests/offload/spark/test_notebook.py": "spark",
    "tests/offload/spark/test_pages.py": "spark",
    "tests/offload/spark/jobs/test_statistics.py": "spark",
    "tests/offload/spark/jobs/test_verify.py": "spark",
    "tests/offload/spark/jobs/test_export.py": "spark",
    "tests/offload/spark/jobs/test_gc_plan.py": "spark",
    "tests/offload/spark/jobs/test_compaction.py": "spark",
    "tests/offload/spark/test_streams_in_spark.py": "spark",
    "tests/offload/spark/test_requests.py": "spark",
    "tests/offload/spark/test_doctor_spark.py": "spark",
    "tests/promises/test_histories_in_spark.py": "spark",
    "tests/offload/spark/test_spark_encryption.py": "spark",
    "tests/offload/spark/test_writer.py": "spark",
    "tests/offload/spark/test_stream_sink.py": "spark",
    "tests/offload/spark/test_writer_faults.py": "spark",
    "tests/offload/spark/test_catalog.py": "spark",
    "tests/offload/spark/test_catalog_inserts.py": "spark",
    "tests/offload/spark/test_feed_in_spark.py": "spark",
    "tests/offload/spark/test_sql_tables.py": "spark",
}
#: Each test of these starts a process of its own for nearly all of its time, so any process of the run may take it.
_APART = ("tests/races/", "tests/simulation/")
_LONG_DIRECTORIES = {"promises", "seglog"}
_HANGS_AFTER_S = 3 * 3600
_OBJECTS_BETWEEN_COLLECTIONS = 20_000
_IN_MEMORY = Path("/dev/shm")
_ROOM_IN_MEMORY = 4 << 30
#: Loggers that a daemon sets up for its process, by `offload/daemon/logs.py` and by uvicorn.
_LOGGERS = (
    *("aiobotocore", "aiohttp", "asyncio", "boto3", "botocore", "s3transfer", "seglog", "urllib3"),
    *("uvicorn", "uvicorn.access", "uvicorn.asgi", "uvicorn.error"),
)


def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed before the processes of a run begin, because they inherit it.

    They also inherit that Ctrl-C is ignored, if a script runs the tests in its background.
    """
    work.run_seed()
    config.pluginmanager.register(hangs)
    if "TMPDIR" not in os.environ and _has_room_in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))  # where pytest makes the directories of tests
    gc.disable()  # until all tests are collected
    # With `CI` in the environment, Hypothesis begins with other settings: the same examples for each seed. So begin
    # with those of everybody. Their limits of time go, because a busy machine, or a first import, takes longer.
    settings.register_profile(
        "seglog",
        settings.get_profile("default"),
        deadline=None,
        max_examples=20,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
        # A mutant is killed by the first example that fails: nobody reads the smallest one.
        phases=[Phase.explicit, Phase.generate] if "TESTS_MUTANT" in os.environ else tuple(Phase),
    )
    settings.load_profile("seglog")
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    drawn.ignore_imports(patch)
    drawn.watch(patch)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _has_room_in_memory() -> bool:
    try:
        found = os.statvfs(_IN_MEMORY)
    except OSError:
        return False
    return os.access(_IN_MEMORY, os.W_OK) and found.f_bavail * found.f_frsize >= _ROOM_IN_MEMORY


def pytest_report_header() -> str:
    return f"seed: {work.SEED}={work.run_seed()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests that take longest to the front.

    A test of the soak belongs to one of its parts, and gets a timeout that only a hang reaches. A test of Spark with a
    bucket of its own gets the keyword s3, by which `make test-minio` picks it.
    """
    items.sort(key=lambda item: _rank(item.path))
    for item in items:
        if "spark" in item.path.parts and "s3_remote" in getattr(item, "fixturenames", ()):
            item.extra_keyword_matches.add("s3")
        if mark := item.get_closest_marker("soak"):
            if mark.kwargs.get("part") not in work.PARTS:
                raise pytest.UsageError(f"{item.nodeid}: the soak has no part {mark.kwargs}")
            asks_minio = "iam" in item.path.parts  # only `make test-iam` has these, and runs them by their part
            if not asks_minio and item.nodeid not in _slices() and not item.config.option.collectonly:
                raise pytest.UsageError(f"{item.nodeid} is no slice yet: run `make slices`")
            item.add_marker(pytest.mark.timeout(_HANGS_AFTER_S))


def _is_whole(config: pytest.Config) -> bool:
    """Return whether this is all that `make test` runs."""
    is_all = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return is_all and config.option.markexpr == "not long and not soak and not pulsar" and not config.option.keyword


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of `make test` whose tests start too many processes."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput") or not _is_whole(session.config):
        return
    if costs.above_bounds(_spent(reporter)) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _spent(reporter: Any) -> dict[str, Any]:
    """Return the cost of each test."""
    return {
        report.nodeid: value
        for reports in reporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == costs.COST
    }


@functools.cache
def _slices() -> frozenset[str]:
    return frozenset(runs.read_record())


def pytest_collection_finish() -> None:
    """Spare the garbage collector the modules and the tests, which stay until the end of the run.

    And let it look for cycles less often than at every 700 new objects, because tests make many and leave few cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 10, 10)
    gc.enable()


class _FilesTogether(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        scope = super()._split_scope(nodeid)
        return nodeid if scope.startswith(_APART) else _TOGETHER.get(scope, scope)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return _FilesTogether(config, log) if config.getvalue("dist") == "loadfile" else None


@functools.cache
def _rank(file: Path) -> int:
    if file.stem in _LONG_FILES:
        return _LONG_FILES.index(file.stem)
    folder = file.relative_to(Path(__file__).parent).parts[0]
    return len(_LONG_FILES) + (folder not in _LONG_DIRECTORIES)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    mark = item.get_closest_marker("soak")
    work.begin_slice(mark.kwargs.get("slice", 0) if mark else 0)
    # `derandomize` would draw the same under each seed of a run, and in each slice of the soak.
    core.global_force_seed = work.seed_of(f"examples of {item.nodeid}")
    drawn.begin()
    costs.begin()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put lines, counts and cost of a test into its report, so that they reach the end of the run from any process."""
    item.user_properties += [(work.LINE, line) for line in work.taken()]
    report = yield
    report.user_properties += [(work.COUNT, list(each)) for each in work.counted()]
    if call.when == "teardown":
        report.user_properties.append((costs.COST, costs.cost()))
        report.user_properties += [(drawn.DRAWN, fact) for fact in drawn.taken(item.nodeid)]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reports = [
        report for some in terminalreporter.stats.values() for report in some if isinstance(report, pytest.TestReport)
    ]
    lines = [
        f"{report.nodeid.removeprefix('tests/').replace('.py::test_', ': ').replace('_', ' ')}: {line}"
        for report in reports
        if report.when == "call"
        for name, line in report.user_properties
        if name == work.LINE
    ]
    sums: Counter[str] = Counter()
    for report in reports:
        for name, value in report.user_properties:
            if name == work.COUNT:
                sums[value[0]] += value[1]
    spent = _spent(terminalreporter)
    sums += costs.starts(spent)
    for line in costs.above_bounds(spent) if _is_whole(config) else ():
        terminalreporter.line(line, red=True)
    facts = {value for report in reports for name, value in report.user_properties if name == drawn.DRAWN}
    shown = sorted(lines + [f"{what}: {number:,}" for what, number in sums.items()])
    shown += [drawn.told(facts)] if facts else []
    if shown:
        terminalreporter.section(f"work done, with {work.SEED}={work.run_seed()}")
        for line in shown:
            terminalreporter.line(line)
    passed, failed = len(terminalreporter.stats.get("passed", [])), len(terminalreporter.stats.get("failed", []))
    counts = {"passed": passed, "failed": failed, "counts": sorted(lines), "drawn": drawn.told(facts)}
    costs.write(spent, counts)


@pytest.fixture(scope="session", autouse=True)
def _dead_processes_repeat_nothing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        end_work_at(patch, SimulatedCrash)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_syncs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        spare_syncs(patch)
        take_memory_for_a_disk(patch, tmp_path_factory.getbasetemp())
        yield


@pytest.fixture(scope="session", autouse=True)
def _pure_calls_are_remembered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        remember_pure_calls(patch.setattr)
        yield


@pytest.fixture(autouse=True)
def _same_process() -> Iterator[None]:
    """Hold that a test leaves its process as it was, because the next one must not depend on it."""
    before = _process()
    yield
    assert _process() == before


_SIGNALS = (signal.SIGALRM, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)


def _process() -> dict[str, object]:
    environment = dict(os.environb)  # that of texts would encode and decode each
    environment.pop(b"PYTEST_CURRENT_TEST", None)
    return {
        "environment": environment,
        "directory": os.getcwd(),
        "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE),
        "gc": gc.isenabled(),
        "path": sys.path[:],
        "signals": [signal.getsignal(each) for each in _SIGNALS],
        "time zone": time.tzname,
    }


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    """Give the loggers back as they were: a daemon that ran in this process has set them up for its own."""
    former = [(each, *_set_up(each)) for each in (logging.root, *map(logging.getLogger, _LOGGERS))]
    yield
    for logger, *before in former:
        if before != _set_up(logger):  # to set a level costs more than to look at all
            level, logger.propagate, logger.handlers[:], logger.filters[:] = before
            logger.setLevel(level)


def _set_up(logger: logging.Logger) -> list[Any]:
    return [logger.level, logger.propagate, logger.handlers[:], logger.filters[:]]


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """Return an empty directory on a disk. A log in memory warns of it, on the standard error of a command."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as path:
        yield Path(path)


@pytest.fixture
def real_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    use_real_syncs(monkeypatch)


@pytest.fixture(params=["file", "s3"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an empty remote as a user writes it: `file:///path`, then `s3://bucket/prefix`."""
    return empty_remote(request, tmp_path)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the pauses between the attempts of a request."""
    monkeypatch.setattr("catalog.objects.settled_writes.backoff_s", lambda _: 0.0)
