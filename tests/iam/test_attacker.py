"""An attacker has the keys of one tenant, of any role, and raw boto3. It knows every name, id and version of the other.

Each attack is one call that must fail. Its row says the code of the error. After all attacks, the other tenant's
versions, markers and parts are the same.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from catalog.tenants.policies import TenantRole
from tests import work
from tests.iam.site import TRAP, Site, User
from tests.iam.victim import Victim, make_victim, state_of

TENANT = "acme"
DENIED = "AccessDenied"


@dataclass(frozen=True, slots=True)
class Attacker:
    """`own` is the attacker's own prefix, in which `upload_id` is an upload of the key `upload`."""

    client: Any
    site: Site
    victim: Victim
    own: str
    upload_id: str
    role: str = "session"

    def ask(self, method: str, **given: Any) -> Any:
        return getattr(self.client, method)(Bucket=self.site.bucket, **given)

    def source(self, **given: str) -> dict[str, str]:
        return {"Bucket": self.site.bucket, "Key": self.victim.key, **given}

    def delete_many(self, **named: str) -> None:
        for error in self.ask("delete_objects", Delete={"Objects": [named]}).get("Errors", ()):
            raise ClientError({"Error": error}, "DeleteObjects")

    def signed(self, method: str, key: str, **given: Any) -> str:
        where = {"Bucket": self.site.bucket, "Key": key, **given}
        return str(self.client.generate_presigned_url(method, Params=where))

    def posted(self, key: str) -> None:
        """Upload by the form of a browser, with a policy that the attacker signs itself."""
        form = self.client.generate_presigned_post(self.site.bucket, key)
        lines = [
            f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'
            for name, text in form["fields"].items()
        ]
        lines.append('--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nevil\r\n--x--\r\n')
        _open(form["url"], "".join(lines).encode(), "POST", {"Content-Type": "multipart/form-data; boundary=x"})


def _open(url: str, body: bytes | None = None, method: str = "GET", headers: Mapping[str, str] | None = None) -> bytes:
    """Send a request without boto3. Raises `ClientError` with the code in the answer."""
    request = urllib.request.Request(url, body, dict(headers or {}), method=method)  # noqa: S310 - our own server
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            code = error.read().decode().partition("<Code>")[2].partition("</Code>")[0]
        raise ClientError({"Error": {"Code": code or str(error.code)}}, method) from error


Attack = Callable[[Attacker], object]
#: Attacks with the one answer that IAM has.
ATTACKS: Mapping[str, Attack] = {
    "list without a prefix": lambda it: it.ask("list_objects_v2"),
    "list with an empty prefix": lambda it: it.ask("list_objects_v2", Prefix=""),
    "list the root with a delimiter": lambda it: it.ask("list_objects_v2", Delimiter="/"),
    "list with its own name as a delimiter": lambda it: it.ask("list_objects_v2", Delimiter="acme/"),
    "list after its own prefix": lambda it: it.ask("list_objects_v2", StartAfter="acme/"),
    "list the other's prefix": lambda it: it.ask("list_objects_v2", Prefix=it.victim.prefix),
    "list its own name without the slash": lambda it: it.ask("list_objects_v2", Prefix="acme"),
    "list versions without a prefix": lambda it: it.ask("list_object_versions"),
    "list versions and markers of the other": lambda it: it.ask("list_object_versions", Prefix=it.victim.prefix),
    "list uploads without a prefix": lambda it: it.ask("list_multipart_uploads"),
    "list uploads of the other": lambda it: it.ask("list_multipart_uploads", Prefix=it.victim.prefix),
    "list uploads of its own": lambda it: it.ask("list_multipart_uploads", Prefix="acme/"),
    "list the buckets": lambda it: it.client.list_buckets(),
    "read": lambda it: it.ask("get_object", Key=it.victim.key),
    "read a range": lambda it: it.ask("get_object", Key=it.victim.key, Range="bytes=0-1"),
    "read an old version": lambda it: it.ask("get_object", Key=it.victim.key, VersionId=it.victim.version_id),
    "read by a query": lambda it: it.ask(
        "select_object_content",
        Key=it.victim.key,
        Expression="select * from s3object",
        ExpressionType="SQL",
        InputSerialization={"CSV": {}},
        OutputSerialization={"CSV": {}},
    ),
    "copy": lambda it: it.ask("copy_object", Key=f"{it.own}copy", CopySource=it.source()),
    "copy an old version": lambda it: it.ask(
        "copy_object", Key=f"{it.own}copy", CopySource=it.source(VersionId=it.victim.version_id)
    ),
    "copy a part": lambda it: it.ask(
        "upload_part_copy", Key=f"{it.own}upload", UploadId=it.upload_id, PartNumber=1, CopySource=it.source()
    ),
    "copy a part by a path with dots": lambda it: it.ask(
        "upload_part_copy",
        Key=f"{it.own}upload",
        UploadId=it.upload_id,
        PartNumber=1,
        CopySource=f"{it.site.bucket}/{it.victim.prefix}../{it.victim.key}",
    ),
    "write": lambda it: it.ask("put_object", Key=f"{it.victim.prefix}new", Body=b"evil"),
    "write its own object to the other": lambda it: it.ask(
        "copy_object", Key=f"{it.victim.prefix}new", CopySource=it.source(Key=f"{it.own}object")
    ),
    "overwrite": lambda it: it.ask("put_object", Key=it.victim.key, Body=b"evil"),
    "write at the root": lambda it: it.ask("put_object", Key="new", Body=b"evil"),
    "write a name that its own begins": lambda it: it.ask("put_object", Key="acme.new", Body=b"evil"),
    "post a form": lambda it: it.posted(f"{it.victim.prefix}new"),
    "start an upload": lambda it: it.ask("create_multipart_upload", Key=it.victim.upload_key),
    "list the parts of the other's upload": lambda it: it.ask(
        "list_parts", Key=it.victim.upload_key, UploadId=it.victim.upload_id
    ),
    "send a part": lambda it: it.ask(
        "upload_part", Key=it.victim.upload_key, UploadId=it.victim.upload_id, PartNumber=1, Body=b"evil"
    ),
    "complete the other's upload": lambda it: it.ask(
        "complete_multipart_upload",
        Key=it.victim.upload_key,
        UploadId=it.victim.upload_id,
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": it.victim.part_etag}]},
    ),
    "abort the other's upload": lambda it: it.ask(
        "abort_multipart_upload", Key=it.victim.upload_key, UploadId=it.victim.upload_id
    ),
    "delete": lambda it: it.ask("delete_object", Key=it.victim.key),
    "delete by a list": lambda it: it.delete_many(Key=it.victim.key),
    "delete an old version": lambda it: it.ask("delete_object", Key=it.victim.key, VersionId=it.victim.version_id),
    "delete an old version by a list": lambda it: it.delete_many(Key=it.victim.key, VersionId=it.victim.version_id),
    "delete an old version past its lock": lambda it: it.ask(
        "delete_object", Key=it.victim.key, VersionId=it.victim.version_id, BypassGovernanceRetention=True
    ),
    "remove a marker": lambda it: it.ask("delete_object", Key=it.victim.deleted_key, VersionId=it.victim.marker_id),
    "read by a signed URL": lambda it: _open(it.signed("get_object", it.victim.key)),
    "write by a signed URL": lambda it: _open(it.signed("put_object", it.victim.key), b"evil", "PUT"),
    "delete by a signed URL": lambda it: _open(it.signed("delete_object", it.victim.key), method="DELETE"),
    "open the bucket to everybody": lambda it: it.ask("put_bucket_acl", ACL="public-read-write"),
    "read without keys": lambda it: _open(f"{it.site.endpoint}/{it.site.bucket}/{it.victim.key}"),
}
#: Attacks that fail for another reason than a right, or for several. Each has the codes of the answer, and the reason.
OTHERS: Mapping[str, tuple[Attack, frozenset[str], str]] = {
    "head": (
        lambda it: it.ask("head_object", Key=it.victim.key),
        frozenset({"403"}),
        "a HEAD has no body, so no code",
    ),
    "head an absent key": (
        lambda it: it.ask("head_object", Key=f"{it.victim.prefix}absent"),
        frozenset({"403"}),
        "the same as for an object that exists",
    ),
    "ask for the bucket": (lambda it: it.ask("head_bucket"), frozenset({"403"}), "S3 judges it as a LIST"),
    "change a signed URL": (
        lambda it: _open(it.signed("get_object", f"{it.own}object").replace(f"{it.own}object", it.victim.key)),
        frozenset({"SignatureDoesNotMatch"}),
        "the signature holds the path",
    ),
    "complete the other's upload under its own key": (
        lambda it: it.ask(
            "complete_multipart_upload",
            Key=f"{it.own}upload",
            UploadId=it.victim.upload_id,
            MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": it.victim.part_etag}]},
        ),
        frozenset({DENIED, "NoSuchUpload"}),
        "an upload belongs to its key; a reader has no right to complete any",
    ),
    "write along a path with dots": (
        lambda it: it.ask("put_object", Key=f"{it.own}../{it.victim.prefix}new", Body=b"evil"),
        frozenset({DENIED, "XMinioInvalidResourceName"}),
        "on AWS this is a key in the attacker's own prefix; MinIO takes no dots",
    ),
    "read along a path with dots": (
        lambda it: it.ask("get_object", Key=f"{it.own}../{it.victim.key}"),
        frozenset({DENIED, "XMinioInvalidResourceName"}),
        "the same",
    ),
    "copy by a path with dots": (
        lambda it: it.ask(
            "copy_object", Key=f"{it.own}copy", CopySource=f"{it.site.bucket}/{it.own}../{it.victim.key}"
        ),
        frozenset({DENIED, "XMinioInvalidObjectName", "XMinioInvalidResourceName", "NoSuchKey"}),
        "the same",
    ),
}


@pytest.fixture(scope="module", params=["globex/", f"{TRAP}/"])
def victim(request: pytest.FixtureRequest, site: Site) -> Iterator[Victim]:
    """Yield the victim, and compare it in the end with what it was."""
    victim = make_victim(site, request.param)
    before = state_of(site, victim)
    yield victim
    assert state_of(site, victim) == before


@pytest.fixture(params=TenantRole)
def attacker(request: pytest.FixtureRequest, site: Site, victim: Victim) -> Attacker:
    return replace(an_attacker(site, victim, site.user(TENANT, request.param)), role=str(request.param))


def an_attacker(site: Site, victim: Victim, user: User) -> Attacker:
    owner, own = site.client(), f"{TENANT}/"
    owner.put_object(Bucket=site.bucket, Key=f"{own}object", Body=b"its own")
    upload = owner.create_multipart_upload(Bucket=site.bucket, Key=f"{own}upload")["UploadId"]
    return Attacker(site.client(user), site, victim, own, upload)


def test_no_attack_succeeds(attacker: Attacker) -> None:
    assert {name: _code(attack, attacker) for name, attack in ATTACKS.items()} == dict.fromkeys(ATTACKS, DENIED)
    seen = {name: _code(attack, attacker) for name, (attack, _, _) in OTHERS.items()}
    assert [(name, code) for name, code in seen.items() if code not in OTHERS[name][1]] == []
    work.tell(f"{len(ATTACKS) + len(OTHERS)} attacks by a {attacker.role} on {attacker.victim.prefix}, none succeeded")


def test_the_attacker_reads_its_own_object_by_the_same_ways(attacker: Attacker) -> None:
    """Without this, a wrong key would pass for a denial."""
    assert attacker.ask("get_object", Key=f"{attacker.own}object")["Body"].read() == b"its own"
    assert _open(attacker.signed("get_object", f"{attacker.own}object")) == b"its own"
    assert attacker.ask("list_objects_v2", Prefix=attacker.own)["KeyCount"] > 0


def test_a_continuation_of_its_own_list_leads_to_no_other_prefix(attacker: Attacker) -> None:
    owner, own = attacker.site.client(), f"{attacker.own}list/"
    for number in range(3):
        owner.put_object(Bucket=attacker.site.bucket, Key=f"{own}{number}", Body=b"")
    token = attacker.ask("list_objects_v2", Prefix=own, MaxKeys=1)["NextContinuationToken"]
    others = [{"Prefix": attacker.victim.prefix}, {"Prefix": ""}, {}]
    asked = [lambda it, other=other: it.ask("list_objects_v2", ContinuationToken=token, **other) for other in others]
    assert [_code(each, attacker) for each in asked] == [DENIED] * 3
    rest = attacker.ask("list_objects_v2", Prefix=own, ContinuationToken=token)["Contents"]
    assert [each["Key"] for each in rest] == [f"{own}1", f"{own}2"]


def test_a_session_with_a_policy_for_everything_has_no_further_rights(site: Site, victim: Victim) -> None:
    """MinIO gives every user a session with AssumeRole. A session policy cannot widen the policy of the user."""
    wide = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["arn:aws:s3:::*"]}
    session = site.session(site.user(TENANT, "admin"), {"Version": "2012-10-17", "Statement": [wide]})
    attacker = an_attacker(site, victim, session)
    assert {name: _code(attack, attacker) for name, attack in ATTACKS.items()} == dict.fromkeys(ATTACKS, DENIED)
    assert attacker.ask("get_object", Key=f"{attacker.own}object")["Body"].read() == b"its own"


def test_the_keys_of_a_tenant_rule_no_user_and_no_policy(site: Site) -> None:
    attempts = {
        "list the users": ("admin", "user", "list", "seglog"),
        "add a user": ("admin", "user", "add", "seglog", "mallory", "a-secret-of-mallory"),
        "attach a policy": ("admin", "policy", "attach", "seglog", "consoleAdmin", "--user", f"{TENANT}-admin"),
        "list the policies": ("admin", "policy", "list", "seglog"),
    }
    answers = {name: site.mc(site.user(TENANT, "admin"), *words) for name, words in attempts.items()}
    assert {name: "Access Denied" in answer for name, answer in answers.items()} == dict.fromkeys(attempts, True)


def _code(attack: Attack, attacker: Attacker) -> str:
    """Return the code of the error, or "succeeded"."""
    try:
        attack(attacker)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "succeeded"
