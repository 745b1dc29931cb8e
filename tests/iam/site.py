"""One MinIO for the tests of policies: a bucket with versions and object lock, and for each tenant a user of each role.

`localstack/init-minio.sh` makes them, as a user of the stand-ins does. The server has one static key of a KMS.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.httpsession import URLLib3Session

from benchmarks.minio import serving_minio
from catalog.tenants.policies import TenantRole

__all__ = [
    "BROKER",
    "BUCKET",
    "KMS_KEY",
    "MC",
    "MINIO",
    "OWNER",
    "REGION",
    "ROOT",
    "TENANTS",
    "TRAP",
    "Site",
    "User",
    "running_site",
]

ROOT = Path(__file__).parents[2]
MINIO = os.environ.get("TESTS_MINIO", "")
MC = os.environ.get("TESTS_MC", "")
BUCKET = "archive"
TENANTS = ("acme", "globex")
TRAP = "acme2"  # the name of acme is its beginning

KMS_KEY = "key-of-tests"
REGION = "us-east-1"
_SIGNATURES = {"s3": "s3v4", "sts": "v4"}  # boto3 still signs the URLs of S3 with version 2


@dataclass(frozen=True, slots=True)
class User:
    name: str
    secret: str
    token: str = ""  # of a session

    @property
    def environment(self) -> dict[str, str]:
        """The variables of AWS with which a process is this user."""
        keys = {"AWS_ACCESS_KEY_ID": self.name, "AWS_SECRET_ACCESS_KEY": self.secret}
        return keys | ({"AWS_SESSION_TOKEN": self.token} if self.token else {})


BROKER = User("broker-of-sessions", "secret-of-the-broker")
OWNER = User("owner-of-the-bucket", "secret-of-the-owner")


@dataclass(frozen=True, slots=True)
class Site:
    endpoint: str
    bucket: str = BUCKET

    def user(self, tenant: str, role: str) -> User:
        return User(f"{tenant}-{role}", "secret-of-the-tenants")

    def client(self, user: User = OWNER) -> Any:
        """Return an S3 client of the user that tries each request once."""
        return _client("s3", self.endpoint, user)

    def session_of(self, tenant: str, role: TenantRole) -> User:
        """Return a session of a user with all rights. Its session policy is what `seglog tenant policy` prints."""
        return _session_of(self, tenant, role)

    def session(self, user: User, policy: Mapping[str, Any]) -> User:
        """Return a session of the user with a session policy."""
        sts = _client("sts", self.endpoint, user)
        role = "arn:minio:iam:::role/of-the-user"  # MinIO does not look at it
        given = sts.assume_role(RoleArn=role, RoleSessionName="tests", Policy=json.dumps(policy))["Credentials"]
        return User(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])

    def revoke_sessions(self, user: User) -> None:
        """End all sessions of the user at once. MinIO forgets them, as it does when they expire."""
        url = f"{self.endpoint}/minio/admin/v3/revoke-tokens/builtin?user={user.name}&fullRevoke=true"
        request = AWSRequest("POST", url)
        S3SigV4Auth(Credentials(OWNER.name, OWNER.secret), "s3", REGION).add_auth(request)
        with closing(URLLib3Session()) as session:
            answer = session.send(request.prepare())
        assert answer.status_code == HTTPStatus.NO_CONTENT, answer.text

    def url(self, tenant: str, *path: str) -> str:
        return "/".join((f"s3://{self.bucket}/{tenant}", *path))

    def mc(self, user: User, *words: str) -> str:
        """Run a command of MinIO's client as the user, with the alias `seglog`. Return what it prints."""
        host = self.endpoint.replace("://", f"://{user.name}:{user.secret}@")
        with tempfile.TemporaryDirectory() as directory:
            environment = {"MC_HOST_seglog": host, "HOME": directory}
            command = [MC, "--config-dir", directory, *words]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def environment(self, user: User) -> dict[str, str]:
        """Return the variables of AWS with which a process asks this server as the user alone."""
        return user.environment | {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }


@cache
def _session_of(site: Site, tenant: str, role: TenantRole) -> User:
    command = [sys.executable, "-m", "offload", "tenant", "policy", tenant, "--role", role, "--bucket", site.bucket]
    printed = subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout
    return site.session(BROKER, json.loads(printed))


@cache
def _client(service: str, endpoint: str, user: User) -> Any:
    return boto3.client(
        service,
        endpoint_url=endpoint,
        aws_access_key_id=user.name,
        aws_secret_access_key=user.secret,
        aws_session_token=user.token or None,
        region_name=REGION,
        config=Config(
            retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}, signature_version=_SIGNATURES[service]
        ),
    )


@contextmanager
def running_site(directory: Path) -> Iterator[Site]:
    """Start MinIO, and make the bucket, the policies and the users. If MinIO or `mc` is missing, skip the test."""
    if not (MINIO and MC):
        pytest.skip("MinIO is not here: make test-iam builds it, where there is a Go")
    key = f"{KMS_KEY}:{base64.b64encode(os.urandom(32)).decode()}"
    server = serving_minio(MINIO, directory / "data", OWNER.name, OWNER.secret, MINIO_KMS_SECRET_KEY=key)
    with server as endpoint:
        site = Site(endpoint)
        site.client().create_bucket(Bucket=site.bucket, ObjectLockEnabledForBucket=True)
        _make_users(site, directory)
        site.mc(OWNER, "admin", "user", "add", "seglog", BROKER.name, BROKER.secret)
        site.mc(OWNER, "admin", "policy", "attach", "seglog", "readwrite", "--user", BROKER.name)
        yield site


def _make_users(site: Site, directory: Path) -> None:
    environment = {
        "PATH": f"{Path(MC).parent}:{os.environ['PATH']}",
        "HOME": str(directory),
        "MINIO_ROOT_USER": OWNER.name,
        "MINIO_ROOT_PASSWORD": OWNER.secret,
        "SEGLOG_BUCKET": site.bucket,
        "SEGLOG_SECRET": site.user(TRAP, "reader").secret,
        "SEGLOG_TENANTS": " ".join((*TENANTS, TRAP)),
    }
    script = ROOT / "localstack" / "init-minio.sh"
    done = subprocess.run([script, site.endpoint], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
