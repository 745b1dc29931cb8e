"""Test what a scrape of a real daemon shows: names, units, helps, the bounds of labels, and the values of offloads."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import offload
import seglog
from catalog import LocalCatalog
from offload.operations.command import SHOWN_TYPE
from offload.token_rights import Role, token_line
from tests.daemons import ServedDirectory, served
from tests.faults.front import Front, HttpFault
from tests.waiting import wait_until

DOCS = Path(__file__).resolve().parents[3] / "docs"
LABELS = {
    "topic", "outcome", "operation", "route", "command", "status", "reason", "cache", "band", "kind", "task", "le",
    "version", "python",
}  # fmt: skip


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    place = tmp_path_factory.mktemp("metrics")
    seglog.open(place / "d").close()
    with served(place / "d", (place / "remote").as_uri(), OFFLOAD_OFFLOAD_AFTER_S="never") as running:
        running.append("t", b"x")
        yield running


def scraped(daemon: ServedDirectory) -> dict[str, Metric]:
    text = daemon.ask("GET", "/metrics")[1].decode()
    assert "_created" not in text
    return {each.name: each for each in text_string_to_metric_families(text)}


def value(daemon: ServedDirectory, name: str, **labels: str) -> float | None:
    """Return the value of a sample, or None without one. A label that is not given may have any value."""
    samples = [sample for family in scraped(daemon).values() for sample in family.samples if sample.name == name]
    found = [each.value for each in samples if labels.items() <= each.labels.items()]
    assert len(found) <= 1, found
    return found[0] if found else None


def test_each_name_has_its_unit_its_type_and_a_help_that_makes_sense_alone(daemon: ServedDirectory) -> None:
    families = scraped(daemon)
    ours = {name: each for name, each in families.items() if name.startswith("seglog_")}
    assert {"process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds"} <= set(families)
    for name, family in ours.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
        assert re.fullmatch(r"[A-Z0-9][^\n]+\.", family.documentation), name
        assert len(family.documentation.split()) >= 4, (name, family.documentation)
        assert not re.search(r"_(ms|millis|kb|mb|minutes|hours)(_|$)", name), name
        if family.type == "histogram":
            assert name.endswith("_seconds"), name
        for sample in family.samples:
            assert set(sample.labels) <= LABELS, sample
            assert family.type != "counter" or sample.name == f"{name}_total"
    helps = [each.documentation for each in ours.values()]
    assert len(set(helps)) == len(helps)
    [build] = families["seglog_build_info"].samples
    assert build.labels["version"] == "0.1.0"


def test_the_names_in_the_documents_are_names_of_a_scrape(daemon: ServedDirectory) -> None:
    daemon.call("offload", topic="t")
    shown = {sample.name for family in scraped(daemon).values() for sample in family.samples}
    shown |= set(scraped(daemon)) | {f"{name}_total" for name in scraped(daemon)}
    pages = "".join(
        (DOCS / name).read_text() for name in ("daemon.md", "tenants.md", "metrics.md", "operate/monitoring.md")
    )
    named = set(re.findall(r"`(seglog_[a-z_]+)(?:[`{])", pages))
    assert len(named) >= 40
    assert named <= shown | {"seglog_tenant_up"}  # of a daemon of many tenants


def test_each_metric_of_a_scrape_has_its_row_in_the_page(daemon: ServedDirectory) -> None:
    """The row has the name of the series, the type, and the labels that the samples have."""
    page = (DOCS / "metrics.md").read_text()
    rows = {
        name: (kind, labels) for name, kind, labels in re.findall(r"^\| `(seglog_\w+)` \| (\w+) \|(.*?)\|", page, re.M)
    }
    families = [each for name, each in scraped(daemon).items() if name.startswith("seglog_")]
    assert len(families) > 35
    for family in families:
        name = {"counter": f"{family.name}_total"}.get(family.type, family.name)
        kind, labels = rows[name]
        assert kind == ("info" if name == "seglog_build_info" else family.type)
        for sample in family.samples:
            assert {*sample.labels} - {"le"} == {*re.findall(r"`(\w+)`", labels)}, name
        assert f"| {family.documentation} |" in page


def test_the_example_of_the_page_is_what_a_scrape_answers(daemon: ServedDirectory) -> None:
    shown = re.findall(r"^```text\n(.*)\n```$", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    for value in (b"one", b"two", b"three"):
        daemon.append("orders", value)
    assert [line in daemon.ask("GET", "/metrics")[1].decode().splitlines() for line in shown] == [True]


def test_a_client_cannot_make_up_a_label(daemon: ServedDirectory) -> None:
    before = {each.labels["command"] for each in scraped(daemon)["seglog_http_requests"].samples}
    for number in range(20):
        daemon.ask("POST", f"/rpc/nothing-{number}", b"{}")
        daemon.ask("POST", f"/topics/t/rpc/nothing-{number}", b"{}")
        daemon.ask("GET", f"/nothing-{number}")
        daemon.ask("GET", f"/topics/nothing-{number}/records")
        daemon.ask("GET", f"/topics/t/records?from=nothing-{number}")
    daemon.call("status", topic="t")
    families = scraped(daemon)
    assert {each.labels["command"] for each in families["seglog_http_requests"].samples} <= before | {"status", ""}
    values = [text for family in families.values() for each in family.samples for text in each.labels.values()]
    assert not [text for text in values if "nothing-" in text]
    assert value(daemon, "seglog_http_request_seconds_count", command="status") >= 1


def test_an_offload_on_request_counts_like_the_daemons_own(daemon: ServedDirectory) -> None:
    daemon.append("u", b"x")
    assert value(daemon, "seglog_offload_last_success_timestamp_seconds", topic="u") is None
    published, nothing = (
        value(daemon, "seglog_offload_runs_total", outcome=outcome) or 0 for outcome in ("published", "nothing")
    )
    read_bytes = value(daemon, "seglog_offload_bytes_total") or 0
    daemon.call("seal", topic="u")
    daemon.call("offload", topic="u")
    assert value(daemon, "seglog_offload_runs_total", outcome="published") == published + 1
    assert (value(daemon, "seglog_offload_bytes_total") or 0) > read_bytes
    at_s = value(daemon, "seglog_offload_last_success_timestamp_seconds", topic="u")
    assert at_s is not None
    assert at_s > 1_700_000_000
    assert (value(daemon, "seglog_gc_kept_from_timestamp_seconds", topic="u") or 0) > 1_700_000_000
    daemon.call("offload", topic="u")
    assert value(daemon, "seglog_offload_runs_total", outcome="nothing") >= nothing + 1
    failed = value(daemon, "seglog_offload_runs_total", outcome="failed")
    assert daemon.call("offload", topic="missing")[0]["title"] == "NoSuchTopic"
    assert value(daemon, "seglog_offload_runs_total", outcome="failed") == failed, "the client's mistake is no failure"


def test_streams_are_not_in_the_histogram(daemon: ServedDirectory) -> None:
    stream = {"Accept": SHOWN_TYPE}
    for method, path, body, route in (
        ("GET", "/daemon/events", None, "/daemon/events"),
        ("POST", "/topics/t/rpc/read", b'{"follow": true}', "/topics/{topic}/rpc/{command:path}"),
    ):
        labels = {"route": route, "command": "read" if body else ""}
        before, timed = ended_of(daemon, labels), value(daemon, "seglog_http_request_seconds_count", **labels)
        with closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)) as connection:
            connection.request(method, path, body, stream)
            assert connection.getresponse().read1(1)
            assert connection.sock is not None
            connection.sock.shutdown(socket.SHUT_RDWR)
        wait_until(lambda labels=labels, before=before: ended_of(daemon, labels) > before, pause_s=0.05)
        assert value(daemon, "seglog_http_request_seconds_count", **labels) == timed


def ended_of(daemon: ServedDirectory, labels: dict[str, str]) -> float:
    return value(daemon, "seglog_http_requests_total", status="200", **labels) or 0


def test_a_token_sees_the_figures_of_its_topics(tmp_path: Path) -> None:
    seglog.open(tmp_path / "d").close()
    lines = [("all", "*"), ("some", "app-*")]
    (tmp_path / "tokens").write_text(
        "".join(token_line(name, Role.METRICS, topics, f"of-{name}") + "\n" for name, topics in lines)
    )
    (tmp_path / "tokens").chmod(0o600)
    with served(tmp_path / "d", (tmp_path / "remote").as_uri(), SERVE_TOKEN_FILE=str(tmp_path / "tokens")) as daemon:
        for topic in ("app-1", "web"):
            daemon.call_over_socket("topic/create", topic=topic)
        for name, expected in (("all", {"app-1", "web"}), ("some", {"app-1"})):
            text = daemon.ask("GET", "/metrics", None, {"Authorization": f"Bearer of-{name}"})[1].decode()
            families = list(text_string_to_metric_families(text))
            assert {each.labels.get("topic") for family in families for each in family.samples} - {None} == expected
            assert "seglog_wal_bytes" in text


def test_a_scrape_asks_no_store_for_a_commit_that_is_not_here(
    tmp_path: Path, s3_remote: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with seglog.open(tmp_path / "d") as log, offload.attach(log, s3_remote) as archive:
        for name in ("kept", "lacking"):
            log.topic(name).append([b"x"])
            log.topic(name).seal()
            archive.offload(name)
            archive.upkeep.pause(name)
    with LocalCatalog(tmp_path / "d" / "catalog.db") as local:
        handle = local.handle("lacking")
        assert handle is not None
        assert local.drop_volume(handle.vid) == 1
    with Front(s3_endpoint, [HttpFault("timeout", lasts=True)]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        with served(tmp_path / "d", s3_remote) as running:
            for name, lag in (("kept", 0.0), ("lacking", None)):
                assert value(running, "seglog_topic_head_seq", topic=name) == 1
                assert value(running, "seglog_offload_lag_bytes", topic=name) == lag
            assert not front.struck
