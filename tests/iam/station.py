"""A data directory whose commands run with the keys of one role each, and the requests that MinIO saw."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from catalog.tenants.policies import RIGHTS, Target, TenantRole
from tests import work
from tests.iam.site import MC, OWNER, ROOT, Site
from tests.worlds.command import Done, Run

__all__ = ["Seen", "Station", "check", "requests_of"]

_ANSWERS_WITHIN_S = 30
#: The action that each call of MinIO needs. `s3:ListBucket` also makes an absent key a 404.
_ACTIONS: Mapping[str, str] = {
    "s3.ListObjectsV2": "s3:ListBucket",
    "s3.GetObject": "s3:GetObject",
    "s3.HeadObject": "s3:GetObject",
    "s3.PutObject": "s3:PutObject",
    "s3.NewMultipartUpload": "s3:PutObject",
    "s3.PutObjectPart": "s3:PutObject",
    "s3.CompleteMultipartUpload": "s3:PutObject",
    "s3.AbortMultipartUpload": "s3:AbortMultipartUpload",
    "s3.DeleteObject": "s3:DeleteObject",
    "s3.DeleteMultipleObjects": "s3:DeleteObject",
    "s3.ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "s3.ListObjectParts": "s3:ListMultipartUploadParts",
}


@dataclass(frozen=True, slots=True)
class Station:
    site: Site
    tenant: str
    directory: Path
    folder: str
    run: Run

    @property
    def remote(self) -> str:
        return self.site.url(self.tenant, self.folder)

    @property
    def prefix(self) -> str:
        return f"{self.tenant}/{self.folder}/"

    def asked(self, role: TenantRole, *words: str, stdin: bytes = b"", directory: str = "data") -> Done:
        """Run `seglog` with the keys of the tenant's role, and with no others."""
        with pytest.MonkeyPatch.context() as patch:
            for name in [each for each in os.environ if each.startswith(("AWS_", "SEGLOG_"))]:
                patch.delenv(name)
            for name, text in self.site.environment(self.site.user(self.tenant, role)).items():
                patch.setenv(name, text)
            return self.run(*words, stdin=stdin, directory=str(self.directory / directory))

    def process(self, role: TenantRole, *command: str) -> subprocess.CompletedProcess[str]:
        """Run another program with the keys of the tenant's role, and with no others."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("AWS_", "SEGLOG_"))}
        environment = kept | self.site.environment(self.site.user(self.tenant, role))
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)

    def did(self, role: TenantRole, *words: str, stdin: bytes = b"", directory: str = "data") -> bytes:
        """Run `seglog`, which must succeed, and return what it prints."""
        done = self.asked(role, *words, stdin=stdin, directory=directory)
        assert done.code == 0, f"{role}: {' '.join(words)}: {done.err}"
        return done.out


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that MinIO answered."""

    api: str
    path: str
    status: int


@contextmanager
def requests_of(site: Site) -> Iterator[list[Seen]]:
    """Yield a list, which at the end has every request for S3 that MinIO answered meanwhile."""
    host = site.endpoint.replace("://", f"://{OWNER.name}:{OWNER.secret}@")
    with tempfile.TemporaryDirectory() as directory:
        lines = Path(directory) / "trace"
        command = [MC, "--config-dir", directory, "admin", "trace", "--json", "seglog"]
        environment = {"MC_HOST_seglog": host, "HOME": directory}
        with lines.open("wb") as out:
            trace = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.DEVNULL)
            try:
                _await_mark(site, lines, "begins")
                seen: list[Seen] = []
                yield seen
                _await_mark(site, lines, "ends")
            finally:
                trace.terminate()
                trace.wait()
        told = map(json.loads, lines.read_text().splitlines())
        seen += [_seen(line) for line in told if line.get("status") != "error"]  # of `mc` itself, which was ended
        seen[:] = [each for each in seen if each.api.startswith("s3.") and "/mark-" not in each.path]


def _await_mark(site: Site, lines: Path, name: str) -> None:
    """Make a request of the owner until the trace shows it. The trace has all requests before it then."""
    deadline = time.monotonic() + _ANSWERS_WITHIN_S
    while f"/mark-{name}" not in lines.read_text():
        assert time.monotonic() < deadline, "the trace of MinIO shows nothing"
        site.client().put_object(Bucket=site.bucket, Key=f"mark-{name}", Body=b"")
        time.sleep(0.1)


def _seen(line: dict[str, Any]) -> Seen:
    return Seen(line["api"], line["path"], line["statusCode"])


def check(station: Station, role: TenantRole, requests: list[Seen]) -> None:
    """Check that no request was denied, that none left the prefix, and that each needs an action of the role."""
    assert [each for each in requests if each.status in {401, 403}] == []
    place = f"/{station.site.bucket}"
    assert [
        each for each in requests if each.path not in {place, f"{place}/"} and station.prefix not in each.path
    ] == []
    assert requests
    used = {_ACTIONS[each.api] for each in requests}
    has = {right.action for right in RIGHTS if role.includes(right.least) and right.target is not Target.KEY}
    assert used <= has
    work.tell(f"{role}: {len(requests)} requests, 0 denied, 0 outside; used {', '.join(sorted(used))}")
