"""Test a daemon of two tenants with roles: the key of each request belongs to the tenant whose prefix it names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import seglog
from tests import work
from tests.daemons import ServedDirectory, served_tenants
from tests.faults.front import Front, HttpFault
from tests.s3_server import ACCESS_KEY, may_be_checked, of_several_tenants, taken_requests
from tests.waiting import wait_until

ROLE = "arn:aws:iam::123456789012:role/tenants"
BUCKET = "archive-of-two"
_HANGS_AFTER_S = 90


def _live(daemon: ServedDirectory, tenant: str) -> None:
    """Append, offload, read from the bucket alone, make and delete a branch, collect: all as one tenant."""

    def call(command: str, **given: object) -> bytes:
        body, headers = json.dumps(given).encode(), {"Content-Type": "application/json"}
        status, told, _ = daemon.ask("POST", f"{tenant}/rpc/{command}", body, headers)
        assert status == 200, told
        return told

    bytes_of = {"Content-Type": "application/octet-stream"}
    assert daemon.ask("POST", f"{tenant}/topics/t/records", b"more", bytes_of)[0] == 201
    call("seal", topic="t")
    call("offload", topic="t", drop_hot=True)
    assert b"more" in call("read", topic="t")
    call("branch/create", topic="t", name="fix")
    call("branch/delete", topic="t", name="fix", yes=True)
    call("log", topic="t")
    call("gc")


@pytest.mark.long
def test_each_tenant_uses_its_own_credentials(
    tmp_path: Path, s3_environment: str, s3_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_client.create_bucket(Bucket=BUCKET)
    of_several_tenants(s3_environment, BUCKET)
    may_be_checked(s3_environment, BUCKET)
    root = tmp_path / "root"
    root.mkdir()
    for name in ("acme", "other"):
        with seglog.open(root / name) as log:
            topic = log.topic("t")
            topic.append([b"x"])
            topic.seal()
        (root / name / "seglog.toml").write_text(
            f'[remote]\nurl = "s3://{BUCKET}/{name}"\n[tenant]\nrole_arn = "{ROLE}"\n[offload]\noffload_after_s = 0\n'
        )
    (root / "seglog.toml").write_text("")
    with Front(s3_environment) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        with served_tenants(root) as daemon:
            wait_until(lambda: front.kinds["PUT index"] + front.kinds["PUT commit"] >= 4)
            for name in ("acme", "other", "acme"):
                _live(daemon, f"/tenants/{name}")
    taken = taken_requests(s3_environment)
    assert taken.outside == 0, taken.examples
    assert taken.keys == taken.requests > 100
    work.tell(f"the key of {taken.keys} requests of two tenants is that of the tenant whose prefix it names")
    by_tenant = {name: front.keys_of_prefixes[name] for name in ("acme", "other")}
    assert all(len(keys) == 1 for keys in by_tenant.values()), by_tenant
    assert by_tenant["acme"] != by_tenant["other"]
    assert front.access_keys[ACCESS_KEY] == 2  # AssumeRole, once for each


@pytest.mark.long
def test_tenants_open_and_the_daemon_answers_while_sts_hangs(
    tmp_path: Path, s3_environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More tenants than the loop has threads of its own (`ThreadPoolExecutor`) wait for their first credentials."""
    count = min(32, (os.cpu_count() or 1) + 4) + 2
    root, names = tmp_path / "root", [f"tenant-{number}" for number in range(count)]
    for name in names:
        seglog.open(root / name).close()
        text = f'[remote]\nurl = "s3://{BUCKET}/{name}"\n[tenant]\nrole_arn = "{ROLE}"\n'
        (root / name / "seglog.toml").write_text(text)
    (root / "seglog.toml").write_text("")
    with Front(s3_environment, [HttpFault("timeout", lasts=True)]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        with served_tenants(root) as daemon:
            wait_until(lambda: front.struck)
            assert any(f"of {count} of {count} tenants" in line for line in daemon.lines)
            bytes_of = {"Content-Type": "application/octet-stream"}
            for name in names:
                assert daemon.ask("POST", f"/tenants/{name}/topics/t/records", b"x", bytes_of)[0] == 201
                assert daemon.ask("GET", f"/tenants/{name}/metrics")[0] == 200
            for path in ("/healthz", "/readyz", "/metrics"):
                assert daemon.ask("GET", path)[0] == 200
            assert not [line for line in daemon.lines if "cannot" in line], "no wait for STS is over"
            daemon.terminate()
            assert daemon.process.wait(_HANGS_AFTER_S) == 0
            assert not [line for line in daemon.lines if "Traceback" in line]
