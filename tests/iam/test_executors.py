"""Spark's executors have only a tenant's credentials, which the program of an AWS profile gives, and outlive them.

    1  A cluster starts. Spark gives the executors AWS_CONFIG_FILE and AWS_PROFILE, and no key. The profile runs
       `seglog tenant credentials`, which asks MinIO's STS for a session.
    2  The job reads all records, or writes some.
    3  The test revokes all sessions. MinIO forgets their keys, as it does when sessions expire.
    4  The same executors do the same again.

MinIO gives no session of less than 15 minutes. So a wrapper shortens the end that the program tells. Step 4 either
comes after this end, or long before it: then the store refuses keys that should still live.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from catalog.tenants.policies import TenantRole
from tests import work
from tests.iam.site import BROKER, REGION, ROOT, TENANTS, Site, User
from tests.iam.station import Station, check, requests_of
from tests.offload.spark.standalone import Standalone, running_cluster
from tests.worlds.command import Run, run

__all__ = ["run"]

READER, WRITER = TenantRole.READER, TenantRole.WRITER
OTHER, TENANT = TENANTS
RECORDS, SEGMENTS = 400, 4
ROW = f"FOUND {RECORDS} {8 * RECORDS} {RECORDS}"
ROLE = "arn:aws:iam::111122223333:role/tenants"  # MinIO does not look at it
SHORT_S, LONG_S = 20, 3600
WAITS_S = 600


@dataclass(frozen=True, slots=True)
class Ground:
    """A cluster whose profile takes a role of the tenant. `directory` is out of the sight of Spark."""

    station: Station
    cluster: Standalone
    directory: Path

    def runs(self) -> list[dict[str, Any]]:
        """Return what each run of the program printed."""
        found = self.directory / "runs"
        return [json.loads(line) for line in found.read_text().splitlines()] if found.exists() else []

    def texts(self) -> str:
        """Return all that Spark wrote: what the driver printed, and the logs of master, workers and executors."""
        files = [path for path in self.cluster.directory.rglob("*") if path.is_file() and path.suffix != ".jar"]
        return "\n".join(path.read_text(errors="replace") for path in files)

    @contextmanager
    def job(self, how: str) -> Iterator[Path]:
        """Run the job, and yield the file of its output. At the end, the job must end well."""
        out, job = self.cluster.directory / "driver.out", str(Path(__file__).with_name("executors_job.py"))
        words = [job, how, self.station.remote, str(self.directory)]
        with out.open("w") as stdout, (self.cluster.directory / "driver.err").open("w") as stderr:
            driver = subprocess.Popen(
                [*self.cluster.submit, *words],
                env=dict(self.cluster.environment),
                cwd=self.cluster.directory,
                stdout=stdout,
                stderr=stderr,
            )
            try:
                yield out
                assert driver.wait(WAITS_S) == 0, self.texts()
            finally:
                driver.kill()
                driver.wait()

    def step(self, name: str, out: Path, steps: int) -> None:
        """Let the job do its next step, and wait for its end."""
        (self.directory / name).touch()
        deadline = time.monotonic() + WAITS_S
        while out.read_text().splitlines().count(ROW) < steps:
            assert time.monotonic() < deadline, self.texts()
            time.sleep(0.1)


@pytest.fixture
def station(site: Site, tmp_path: Path, run: Run) -> Station:
    """A topic whose records are in four segments, so that both executors get some."""
    station = Station(site, TENANT, tmp_path / "station", f"spark-{uuid.uuid4().hex}", run)
    station.did(WRITER, "init", "--remote", station.remote)
    for _ in range(SEGMENTS):
        station.did(WRITER, "append", "orders", stdin=b"12345678\n" * (RECORDS // SEGMENTS))
        station.did(WRITER, "seal", "orders")
        station.did(WRITER, "offload", "orders")
    return station


@contextmanager
def grounds(station: Station, directory: Path, role: TenantRole, says_s: int) -> Iterator[Ground]:
    """Start a cluster whose credentials say that they end after so many seconds."""
    site, aws, spark = station.site, directory / "aws", directory / "spark"
    aws.mkdir()
    spark.mkdir()
    program = [sys.executable, str(Path(__file__).with_name("executors_program.py")), str(aws / "runs"), str(says_s)]
    place = ["--bucket", site.bucket, "--role-arn", ROLE, "--profile", "broker"]
    command = [sys.executable, "-m", "offload", "tenant", "credentials", TENANT, "--role", role, "--for", "15m", *place]
    (aws / "config").write_text(
        f"[profile {TENANT}]\nregion = {REGION}\ncredential_process = {' '.join([*program, *command])}\n"
        f"[profile broker]\nregion = {REGION}\n"
    )
    (aws / "credentials").write_text(
        f"[broker]\naws_access_key_id = {BROKER.name}\naws_secret_access_key = {BROKER.secret}\n"
    )
    variables = {
        "AWS_ENDPOINT_URL": site.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(aws / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(aws / "credentials"),
        "AWS_PROFILE": TENANT,
        "PYTHONPATH": str(ROOT),
    }
    settings = {f"spark.executorEnv.{name}": text for name, text in variables.items()}
    with running_cluster(spark, settings, variables) as cluster:
        yield Ground(station, cluster, aws)


def session_in(run: Mapping[str, Any]) -> User:
    return User(run["AccessKeyId"], run["SecretAccessKey"], run["SessionToken"])


def revoke(ground: Ground) -> None:
    """Let MinIO refuse all sessions that there are."""
    site, session = ground.station.site, session_in(ground.runs()[-1])
    request = {"Bucket": site.bucket, "Prefix": ground.station.prefix}
    assert site.client(session).list_objects_v2(**request)["KeyCount"] > 0
    site.revoke_sessions(BROKER)
    with pytest.raises(ClientError, match="InvalidAccessKeyId"):
        site.client(session).list_objects_v2(**request)


def await_end(runs: list[dict[str, Any]]) -> None:
    """Wait until all credentials have ended, by what the program told."""
    ends = max(datetime.fromisoformat(each["Expiration"]) for each in runs)
    time.sleep(max(0.0, (ends - datetime.now(UTC)).total_seconds()))


def check_secrets(ground: Ground, runs: list[dict[str, Any]]) -> None:
    """No key is in what Spark wrote: its settings, plans, errors and logs. The name of the profile is."""
    texts = ground.texts()
    secrets = [each[name] for each in runs for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")]
    assert secrets
    assert [each for each in [*secrets, BROKER.secret] if each in texts] == []
    assert f"spark.executorEnv.AWS_PROFILE={TENANT}" in texts


@pytest.mark.soak(part=9)
@pytest.mark.parametrize("says_s", [SHORT_S, LONG_S], ids=["expired", "refused"])
@pytest.mark.parametrize(("how", "role"), [("jvm", READER), ("python", READER), ("write", WRITER)])
def test_executors_run_the_program_again(
    station: Station, tmp_path: Path, how: str, role: TenantRole, says_s: int
) -> None:
    site = station.site
    with grounds(station, tmp_path, role, says_s) as ground:
        with ground.job(how) as out:
            with requests_of(site) as first:
                ground.step("first", out, 1)
            before = ground.runs()
            revoke(ground)
            if says_s == SHORT_S:
                await_end(before)
            with requests_of(site) as second:
                ground.step("second", out, 2)
        runs = ground.runs()
        check_secrets(ground, runs)
    after = runs[len(before) :]
    executors, again = ({each["place"] for each in found} - {"driver"} for found in (before, after))
    assert executors == again
    assert len(again) == 2
    check(station, role, first)
    refused = [each for each in second if each.status in {401, 403}]
    work.tell(f"{how}, {says_s} s: {len(before)} and {len(after)} runs; {len(refused)} of {len(second)} refused")
    # obstore asks for credentials once a minute, so the first GETs after a short life may be refused and sent again.
    assert refused or says_s == SHORT_S
    check(station, role, [each for each in second if each not in refused])
    with pytest.raises(ClientError, match="AccessDenied"):
        site.client(session_in(after[-1])).list_objects_v2(Bucket=site.bucket, Prefix=f"{OTHER}/")


@pytest.mark.soak(part=9)
def test_a_job_of_upkeep_runs_with_the_profile(station: Station, tmp_path: Path) -> None:
    with grounds(station, tmp_path, READER, LONG_S) as ground:
        cluster, job = ground.cluster, str(ROOT / "offload" / "spark" / "jobs" / "__main__.py")
        with requests_of(station.site) as requests:
            done = subprocess.run(
                [*cluster.submit, job, "verify", station.remote],
                env=dict(cluster.environment),
                cwd=cluster.directory,
                capture_output=True,
                text=True,
                timeout=WAITS_S,
                check=False,
            )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert {each["place"] for each in ground.runs()} > {"driver"}
    check(station, READER, requests)
