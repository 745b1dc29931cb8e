"""`seglog tenant delete` on MinIO, by sessions with the policies of one tenant: the other tenant keeps everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from catalog.tenants.policies import TenantRole, tenant_policy
from tests.iam.site import BROKER, OWNER, Site, User

ROOT = Path(__file__).parents[2]


def run(site: Site, user: User, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **site.environment(user)}
    command = [sys.executable, "-m", "offload", "-C", str(directory), "--json", *words]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)


def session(site: Site, tenant: str, role: TenantRole) -> User:
    return site.session(BROKER, tenant_policy(tenant, role, site.bucket))


def keys(site: Site, tenant: str) -> dict[str, str]:
    """Return the objects of the tenant, as the bucket's owner lists them."""
    listed = site.client(OWNER).list_objects_v2(Bucket=site.bucket, Prefix=f"{tenant}/").get("Contents", ())
    return {each["Key"]: each["ETag"] for each in listed}


def test_a_maintainer_deletes_its_tenant_and_nobody_else_does(site: Site, tmp_path: Path) -> None:
    for tenant in ("leaver", "leaver2"):
        writer = session(site, tenant, TenantRole.WRITER)
        for words in (("init", "--remote", site.url(tenant)), ("append", "t", str(ROOT / "README.md")), ("seal", "t")):
            assert run(site, writer, tmp_path / tenant, *words).returncode == 0
        done = run(site, writer, tmp_path / tenant, "offload", "t")
        assert done.returncode == 0, done.stderr
    mine, other = keys(site, "leaver"), keys(site, "leaver2")
    assert min(len(mine), len(other)) >= 5
    words = ("tenant", "delete", "leaver", "--yes")
    for tenant, role in (
        ("leaver", TenantRole.READER),
        ("leaver", TenantRole.WRITER),
        ("leaver2", TenantRole.ADMIN),
    ):
        refused = run(site, session(site, tenant, role), tmp_path, "--remote", site.url("leaver"), *words)
        assert (refused.returncode, "refuses access" in refused.stderr) == (1, True), refused.stderr
    assert keys(site, "leaver") == mine
    upload = site.client(OWNER).create_multipart_upload(Bucket=site.bucket, Key="leaver/an-upload")
    done = run(site, session(site, "leaver", TenantRole.MAINTAINER), tmp_path / "leaver", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["objects"], found["reclaimed_bytes"], found["proves_uploads"]) == (len(mine), 0, False)
    assert found["unreferenced_bytes"] > 1000, "the bucket is versioned"
    assert keys(site, "leaver") == {}
    assert keys(site, "leaver2") == other
    site.client(OWNER).abort_multipart_upload(Bucket=site.bucket, Key="leaver/an-upload", UploadId=upload["UploadId"])
    print(f"deleted {len(mine)} objects of leaver on MinIO; {len(other)} of leaver2 are as before")
