"""`seglog tenant check` on MinIO: each role of a tenant passes it, and credentials that reach further do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catalog.tenants.policies import TenantRole
from tests import work
from tests.iam.site import BROKER, OWNER, TRAP, Site, User
from tests.iam.station import requests_of
from tests.worlds.command import Run, run

__all__ = ["run"]

GOOD = {"own_prefix": "allowed", "whole_bucket": "denied", "failures": []}


def checked(site: Site, user: User, run: Run, tenant: str, directory: Path) -> dict[str, Any]:
    """Return the result of a check with the user's keys, and its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        for name, text in site.environment(user).items():
            patch.setenv(name, text)
        patch.setenv("AWS_MAX_ATTEMPTS", "1")
        if not user.token:
            patch.delenv("AWS_SESSION_TOKEN", raising=False)
        done = run("--json", "--remote", site.url(tenant), "tenant", "check", tenant, directory=str(directory))
    found = json.loads(done.text.splitlines()[0])
    return {**{name: found[name] for name in GOOD}, "code": done.code}


@pytest.mark.parametrize("role", TenantRole)
def test_each_role_passes_the_check(site: Site, run: Run, tmp_path: Path, role: TenantRole) -> None:
    for user in (site.user("acme", role), site.session_of("acme", role)):
        with requests_of(site) as seen:
            assert checked(site, user, run, "acme", tmp_path) == {**GOOD, "code": 0}
        assert [(each.api, each.status) for each in seen] == [("s3.ListObjectsV2", 200), ("s3.ListObjectsV2", 403)]
    work.count("tenant check on MinIO: roles of users and sessions that pass it", 2)


@pytest.mark.parametrize("role", TenantRole)
def test_the_role_of_the_settings_gives_the_check_a_session(
    site: Site, run: Run, tmp_path: Path, role: TenantRole
) -> None:
    """The broker may do everything. Only the session policy keeps the tenant apart."""
    (tmp_path / "data").mkdir()
    text = f'[tenant]\nname = "acme"\nrole = "{role}"\nrole_arn = "arn:aws:iam::111122223333:role/tenants"\n'
    (tmp_path / "data" / "seglog.toml").write_text(f'[remote]\nurl = "{site.url("acme")}"\n{text}')
    assert checked(site, BROKER, run, "acme", tmp_path / "data") == {**GOOD, "code": 0}
    assert checked(site, BROKER, run, "acme", tmp_path)["whole_bucket"] == "allowed"


def test_keys_that_reach_further_or_less_far_fail_the_check(site: Site, run: Run, tmp_path: Path) -> None:
    further = checked(site, OWNER, run, "acme", tmp_path)
    assert (further["own_prefix"], further["whole_bucket"], further["code"]) == ("allowed", "allowed", 1)
    for other in ("globex", TRAP):
        less = checked(site, site.user(other, "admin"), run, "acme", tmp_path)
        assert (less["own_prefix"], less["whole_bucket"], less["code"]) == ("denied", "denied", 1)
