"""The daemon's metrics for Prometheus. Names, units and labels follow its conventions.

The list of them is in docs/metrics.md, which `make docs` writes from the help texts below.

The text has no `_created` series: they double the number of series, and an alert needs none of them.

METRIC-1  Labels have few values: topics, cursors and queues (1,000 each at most), fixed words and status codes. A label
    never holds a seq, a key or a message.
METRIC-2  A client sees only the topics of its token (offload.token_rights).
METRIC-3  Each series of a tenant has the label `tenant`. A bound token sees no series without it: those of the process
    would tell of other tenants.
"""

from __future__ import annotations

import collections
import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from offload.daemon.figures import DirectoryFigures, FigureCollector
from offload.daemon.scheduler.bands import BANDS
from offload.daemon.scheduler.slots import ReadySet
from offload.operations.command import RequestsSeen
from seglog import OsFiles

_FAST_S = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
_SLOW_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_HOUR_S = 3600.0
_HOURS = 24


class Metrics:
    """The metrics of one daemon, in a registry of its own. No metric is global.

    `last_day` has the requests to the store for `seglog cost`. It is no metric of Prometheus.
    """

    def __init__(self, tenant: str = "", *, is_alone: bool = True) -> None:
        """Make them. With `tenant`, each series has that label. `is_alone` says that the process has no other ones."""
        self.last_day = LastDay()
        self.tenant = tenant
        self.registry = CollectorRegistry()
        if is_alone:
            watch_process(self.registry)
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        fast, slow = (partial(Histogram, registry=self.registry, buckets=buckets) for buckets in (_FAST_S, _SLOW_S))
        self.wal_sync_s = fast("seglog_wal_sync_seconds", "Time of one datasync of a file of the log.")
        self.appended_records = counter("seglog_appended_records", "Records appended over HTTP and acked.")
        self.appended_bytes = counter("seglog_appended_bytes", "Bytes of values appended over HTTP and acked.")
        self.append_s = fast("seglog_append_seconds", "Time of an append over HTTP, from its start to its ack.")
        self.runs = counter(
            "seglog_offload_runs", "Offloads of a topic, by outcome, also those on request.", ["outcome"]
        )
        self.offloaded_bytes = counter("seglog_offload_bytes", "Bytes of frames read for offloads.")
        self.requests = counter("seglog_store_requests", "Requests to the object store.", ["operation", "outcome"])
        self.request_s = slow("seglog_store_request_seconds", "Time of a request to the object store.", ["operation"])
        self.sent_bytes = counter("seglog_store_sent_bytes", "Bytes of bodies sent to the object store.")
        self.received_bytes = counter("seglog_store_received_bytes", "Bytes of bodies received from the object store.")
        self.http_requests = counter(
            "seglog_http_requests", "HTTP requests that the daemon answered.", ["route", "command", "status"]
        )
        self.http_s = slow(
            "seglog_http_request_seconds",
            "Time of an HTTP request to the end of its answer, without streams.",
            ["route", "command"],
        )
        self._requests_of: dict[tuple[str, str, int], Counter] = {}
        self._s_of: dict[tuple[str, str], Histogram] = {}
        self.http_running = gauge("seglog_http_requests_running", "HTTP requests that are answered now.")
        self.http_followers = gauge(
            "seglog_http_followers_running", "HTTP requests that wait for new records or events."
        )
        self.commands_running = gauge("seglog_commands_running", "Commands that run now in the daemon.")
        self.rejected = counter("seglog_http_rejected", "HTTP requests refused before any work was done.", ["reason"])
        self.disk_free_bytes = gauge("seglog_disk_free_bytes", "Bytes free on the disk of the data directory.")
        self.disk_state = gauge(
            "seglog_disk_state", "State of the disk: 0 fine, 1 alarm, 2 full, so that appends are refused."
        )
        self.proxy_requests = counter(
            "seglog_proxy_requests", "Objects and listings of the remote, for readers over HTTP.", ["outcome"]
        )
        self.proxy_bytes = counter(
            "seglog_proxy_bytes", "Bytes of objects of the remote, for readers over HTTP.", ["outcome"]
        )
        self.failures = counter("seglog_background_failures", "Failures of the daemon's background tasks.", ["task"])
        self.gc_runs = counter("seglog_gc_runs", "Runs of GC over the whole remote.", ["outcome"])
        self.gc_done_at_s = gauge(
            "seglog_gc_last_success_timestamp_seconds", "Unix time of the last GC of the daemon that succeeded."
        )
        self.gc_objects = counter("seglog_gc_deleted_objects", "Objects that GC deleted.", ["kind"])
        self.gc_bytes = counter("seglog_gc_deleted_bytes", "Bytes of segments that GC deleted, as far as known.")
        self.tenant_renewals = counter(
            "seglog_tenant_credential_renewals", "Renewals of the tenant's credentials from STS.", ["outcome"]
        )
        self.tenant_credentials_end_s = gauge(
            "seglog_tenant_credentials_expiry_timestamp_seconds", "Unix time when the tenant's credentials expire."
        )
        self.tenant_bucket = gauge(
            "seglog_tenant_bucket_check",
            "Result of the last check that the bucket keeps the tenant apart: 1 is good.",
            ["kind"],
        )
        self.pressure = gauge("seglog_delivery_pressure", "What followers and appends wait for now: 0 to 1.")
        self.ready_feeds = gauge(
            "seglog_delivery_ready_feeds",
            "Topics with news that wait for a slot, by the band of their priority.",
            ["band"],
        )
        self.paused_topics = gauge(
            "seglog_delivery_paused_topics", "Topics with news and a negative priority that are paused."
        )
        self.late_followers = counter(
            "seglog_delivery_late_followers",
            "Times that a follower missed the next page of its topic, and read it itself.",
        )
        self.lost_events = counter("seglog_events_lost", "Events that a slow client of /daemon/events did not get.")

    def watch_delivery(self, ready: ReadySet, cold_ready: ReadySet) -> None:
        """Ask at each scrape for the pressure, that of `ready`, and for the feeds that wait in both ready sets."""

        def waiting(band: int) -> int:
            return ready.waiting(band) + cold_ready.waiting(band)

        self.pressure.set_function(lambda: ready.pressure)
        self.paused_topics.set_function(lambda: ready.paused + cold_ready.paused)
        for number, band in enumerate(BANDS):
            self.ready_feeds.labels(band).set_function(partial(waiting, number))

    def http_requests_of(self, route: str, command: str, status: int) -> Counter:
        """Return the counter of requests with these labels. To look it up costs less than `labels`."""
        key = route, command, status
        counter = self._requests_of.get(key)
        if counter is None:
            counter = self._requests_of[key] = self.http_requests.labels(route, command, str(status))
        return counter

    def http_s_of(self, route: str, command: str) -> Histogram:
        """Return the histogram of times with these labels."""
        histogram = self._s_of.get((route, command))
        if histogram is None:
            histogram = self._s_of[route, command] = self.http_s.labels(route, command)
        return histogram

    def count_rejected(self, reason: str) -> None:
        self.rejected.labels(reason).inc()

    def proxied(self, outcome: str, size_bytes: int) -> None:
        """Count an answer with an object of the remote."""
        self.proxy_requests.labels(outcome).inc()
        self.proxy_bytes.labels(outcome).inc(size_bytes)

    def collected(self, objects: Mapping[str, int], size_bytes: int) -> None:
        """Count the objects that a run of GC deleted, by kind, and their bytes."""
        for kind, count in objects.items():
            self.gc_objects.labels(kind).inc(count)
        self.gc_bytes.inc(size_bytes)

    def watch(self, source: DirectoryFigures) -> None:
        """Ask `source` for the figures of the topics and the caches at each scrape."""
        self.registry.register(FigureCollector(source))

    def text(self, shows: Callable[[str], bool] | None = None) -> bytes:
        """Return the metrics in Prometheus's text format. `shows` returns whether the client may see a topic."""
        return text_of({self.tenant: self.registry}, shows)


def watch_process(registry: CollectorRegistry) -> None:
    """Add the metrics of the process, which no tenant has."""
    ProcessCollector(registry=registry)
    build = Info("seglog_build", "Versions of seglog and Python that this daemon runs.", registry=registry)
    build.info({"version": version("seglog"), "python": platform.python_version()})


@contextmanager
def timed(histogram: Histogram) -> Iterator[None]:
    """Observe how long the block takes, also if it fails."""
    start = time.perf_counter()
    try:
        yield
    finally:
        histogram.observe(time.perf_counter() - start)


class MeteredFiles(OsFiles):
    """The file system, with a measurement of each datasync."""

    def __init__(self, metrics: Metrics) -> None:
        self._sync_s = metrics.wal_sync_s

    def datasync(self, fd: int) -> None:
        with timed(self._sync_s):
            super().datasync(fd)


class LastDay:
    """Counts of requests by method. Safe for many threads. `steady_s` is a clock that never goes back."""

    def __init__(self, steady_s: Callable[[], float] = time.monotonic) -> None:
        self._steady_s = steady_s
        self._lock = threading.Lock()
        self._hours: deque[tuple[float, collections.Counter[str]]] = deque([(steady_s(), collections.Counter())])

    def count(self, method: str) -> None:
        with self._lock:
            self._turn()
            self._hours[-1][1][method] += 1

    def seen(self) -> RequestsSeen:
        """Return the counts. They cover the time since the start, and 24 hours at most."""
        with self._lock:
            self._turn()
            total: collections.Counter[str] = collections.Counter()
            for _, counts in self._hours:
                total += counts
            return RequestsSeen(self._steady_s() - self._hours[0][0], dict(sorted(total.items())))

    def _turn(self) -> None:
        """Begin the hour of now, and forget the hours that began a day ago or earlier."""
        now_s = self._steady_s()
        if now_s - self._hours[-1][0] >= _HOUR_S:
            self._hours.append((now_s, collections.Counter()))
        while len(self._hours) > 1 and now_s - self._hours[0][0] >= _HOURS * _HOUR_S:
            self._hours.popleft()


def text_of(registries: Mapping[str, CollectorRegistry], shows: Callable[[str], bool] | None) -> bytes:
    """Return all samples in the text format, those of a family together.

    The samples of a registry have its name as their label `tenant`; without a name they have no such label. With
    `shows`, the text has only the samples of topics for which it returns True.
    """
    return generate_latest(_Shown(registries, shows))


class _Shown(Collector):
    def __init__(self, registries: Mapping[str, CollectorRegistry], shows: Callable[[str], bool] | None) -> None:
        self._registries = registries
        self._shows = shows

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for tenant, registry in self._registries.items():
            for family in registry.collect():
                metric = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type, family.unit)
                )
                samples = (sample for sample in family.samples if self._is_shown(family, sample))
                metric.samples += [_labelled(sample, tenant) for sample in samples]
        return families.values()

    def _is_shown(self, family: Metric, sample: Sample) -> bool:
        if sample.name == f"{family.name}_created":
            return False
        return self._shows is None or "topic" not in sample.labels or self._shows(sample.labels["topic"])


def _labelled(sample: Sample, tenant: str) -> Sample:
    return sample._replace(labels={"tenant": tenant, **sample.labels}) if tenant else sample
