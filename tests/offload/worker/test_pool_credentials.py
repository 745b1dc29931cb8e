"""Test a worker process whose tenant has credentials of its own: they come over the channel, and from nowhere else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import seglog
from catalog import Sid, Vid
from catalog.errors import AccessDenied
from catalog.format.commit import Codec
from catalog.objects.s3_credentials import FoundCredentials
from offload import ColdSettings
from offload.wiring import variables_without_credentials
from offload.worker.pool import WorkerPool
from offload.write.segment_upload import UploadJob
from seglog import Log, TopicConfig
from tests.faults.front import Front
from tests.faults.offloads import SMALL_BLOCKS, SMALL_LOG
from tests.s3_server import ACCESS_KEY, SECRET_KEY

TOPIC = "t"


class Source:
    """Credentials of a tenant, newer ones for each refusal."""

    def __init__(self) -> None:
        self._numbers = itertools.count(2)
        self.newest = "tenant-1"
        self.trouble: Exception | None = None

    def current(self, refused: str = "") -> FoundCredentials:
        if self.trouble is not None:
            raise self.trouble
        if refused == self.newest:
            self.newest = f"tenant-{next(self._numbers)}"
        return FoundCredentials(self.newest, "a-tenants-secret", "a-token", None)


class NoLimits:
    def take(self, sent_bytes: int) -> None:
        pass

    def answered(self, method: str, outcome: str, elapsed_s: float, sent_bytes: int, received_bytes: int) -> None:
        pass


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def front(s3_environment: str, s3_remote: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    with Front(s3_environment) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        yield front


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", settings=SMALL_LOG) as opened:
        topic = opened.create_topic(TOPIC, TopicConfig(keep_history=True))
        for number in range(40):
            topic.append([b"%03d " % number * 3000])
        topic.seal()
        yield opened


@pytest.fixture
def pool(front: Front, s3_remote: str, source: Source) -> Iterator[WorkerPool]:
    with closing(WorkerPool(s3_remote, ColdSettings(), SMALL_BLOCKS, NoLimits(), credentials=source)) as pool:
        yield pool


def upload(log: Log, pool: WorkerPool) -> None:
    topic = log.topic(TOPIC)
    job = UploadJob(TOPIC, Vid.new(1), Sid.new(2), 1, topic.head_seq, Codec.NONE, SMALL_BLOCKS)
    pool.upload(job, topic, on_upload_id=lambda _: None, on_bytes=lambda _: None)


def test_each_request_of_a_child_has_its_tenants_key(log: Log, pool: WorkerPool, source: Source, front: Front) -> None:
    upload(log, pool)
    assert front.kinds["part"] > 1
    assert set(front.access_keys) == {"tenant-1"}
    (pid,) = pool.pids
    environment = Path(f"/proc/{pid}/environ").read_text()
    for secret in (ACCESS_KEY, SECRET_KEY, "a-tenants-secret", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"):
        assert secret not in environment
    assert f"AWS_ENDPOINT_URL={front.url}" in environment


def test_an_idle_child_has_the_newest_key_at_its_next_turn(
    log: Log, pool: WorkerPool, source: Source, front: Front
) -> None:
    upload(log, pool)
    (pid,) = pool.pids
    front.restart()
    source.newest = "tenant-9"
    upload(log, pool)
    assert set(front.access_keys) == {"tenant-9"}
    assert pool.pids == [pid]


def test_an_upload_of_a_child_continues_after_its_key_expires(
    log: Log, pool: WorkerPool, source: Source, front: Front
) -> None:
    front.expired_keys = {"tenant-1"}
    upload(log, pool)
    assert front.kinds["complete"] == 1
    assert front.access_keys["tenant-2"] > front.access_keys["tenant-1"] > 0


def test_the_error_of_a_source_ends_the_upload(log: Log, pool: WorkerPool, source: Source, front: Front) -> None:
    source.trouble = AccessDenied("STS", "no role")
    with pytest.raises(AccessDenied, match="no role"):
        upload(log, pool)
    assert front.kinds["create"] == 0
    assert pool.pids == []


def test_a_profile_gives_a_child_its_place_and_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[profile here]\nregion = eu-west-3\nendpoint_url = http://s3.example\naws_access_key_id = A\n"
        "aws_secret_access_key = hidden\n"
    )
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    variables = {
        "AWS_PROFILE": "here",
        "AWS_CONFIG_FILE": str(config),
        "AWS_SESSION_TOKEN": "hidden",
        "HOME": "/a",
    }
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert variables_without_credentials(variables) == {
        "HOME": "/a",
        "AWS_DEFAULT_REGION": "eu-west-3",
        "AWS_ENDPOINT_URL": "http://s3.example",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
