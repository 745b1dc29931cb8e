"""The matrix: each call, at each place, by each role of each tenant, with the answers of AWS and of a server.

A cell is allowed if the role has every action of the call, and all its keys and prefixes lie in the prefix of the
tenant. The table of roles in `catalog/tenants/policies.py` says the actions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from botocore.exceptions import ClientError

from catalog.tenants.policies import Target, TenantRole, actions_of
from tests.iam.calls import CALLS, At, Attempt, Call, Kind, Spot
from tests.iam.evaluator import Request
from tests.iam.site import BUCKET, TENANTS, Site, User

__all__ = ["Cell", "Place", "Scene", "Unclear", "cells"]

PART = b"part of an upload"


class Place(StrEnum):
    OWN = "its own prefix"
    OTHER = "the other tenant's prefix"
    LONGER = "the prefix of a tenant with a longer name"
    BARE = "its own name without the slash"
    SHORTER = "the beginning of its own name"
    ROOT = "the root of the bucket"


@dataclass(frozen=True, slots=True)
class Cell:
    call: Call
    place: Place
    tenant: str
    role: TenantRole

    @property
    def prefix(self) -> str | None:
        """The prefix of a LIST at the place."""
        other = TENANTS[1 - TENANTS.index(self.tenant)]
        return {
            Place.OWN: f"{self.tenant}/",
            Place.OTHER: f"{other}/",
            Place.LONGER: f"{self.tenant}2/",
            Place.BARE: self.tenant,
            Place.SHORTER: self.tenant[:-1],
            Place.ROOT: None,
        }[self.place]

    @property
    def key(self) -> str:
        return key_at(self.prefix)

    @property
    def requests(self) -> tuple[Request, ...]:
        """The requests that IAM judges for the call."""
        bucket = f"arn:aws:s3:::{BUCKET}"
        context = {} if self.prefix is None else {"s3:prefix": self.prefix}
        resources = {
            At.HERE: (f"{bucket}/{self.key}", {}),
            At.OWN: (f"{bucket}/{key_at(f'{self.tenant}/')}", {}),
            At.LIST: (bucket, context),
            At.BUCKET: (bucket, {}),
        }
        return tuple(Request(need.action, *resources[need.at]) for need in self.call.needs)

    @property
    def is_expected(self) -> bool:
        """Return whether AWS allows the call."""
        rights = {*actions_of(self.role, Target.BUCKET), *actions_of(self.role, Target.OBJECTS)}
        has = all(need.action in rights for need in self.call.needs)
        return has and self.place is Place.OWN and self.call.kind is not Kind.BUCKET


def key_at(prefix: str | None) -> str:
    """Return the key of the object at a place. A prefix without a slash begins a name that the object completes."""
    return f"{prefix or ''}{'' if prefix is None or prefix.endswith('/') else '.'}object"


def cells() -> Iterator[Cell]:
    """Yield every cell. A call on the bucket has one place, its root."""
    for tenant in TENANTS:
        for call in CALLS:
            for place in [Place.ROOT] if call.kind is Kind.BUCKET else Place:
                for role in TenantRole:
                    yield Cell(call, place, tenant, role)


class Unclear(AssertionError):
    """A server answered neither with success nor with AccessDenied, so the cell says nothing."""


class Scene:
    """The objects and uploads at all places, so that a call fails for no other reason than its rights."""

    def __init__(self, site: Site, identity: Callable[[str, TenantRole], User]) -> None:
        """Make an empty scene. `identity` returns the user with a role of a tenant."""
        self._site = site
        self._identity = identity
        self._owner = site.client()
        self._spots: dict[str, Spot] = {}

    def is_allowed(self, cell: Cell) -> bool:
        """Make the call of the cell. Raises `Unclear`."""
        here, own = self._spot(cell.key), self._spot(key_at(f"{cell.tenant}/"))
        client = self._site.client(self._identity(cell.tenant, cell.role))
        try:
            cell.call.send(Attempt(client, self._site.bucket, here, own, cell.prefix))
        except ClientError as error:
            code, status = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
            if code == "AccessDenied" or (code, status) == ("403", 403):
                return False
            if code not in cell.call.after:
                raise Unclear(f"{cell.call.name} at {cell.place} by {cell.tenant}-{cell.role}: {error}") from error
        if cell.call.changes:
            del self._spots[cell.key]
        return True

    def _spot(self, key: str) -> Spot:
        if key not in self._spots:
            self._spots[key] = self._made(key)
        return self._spots[key]

    def _made(self, key: str) -> Spot:
        place = {"Bucket": self._site.bucket, "Key": key}
        old = self._owner.put_object(**place, Body=b"old")
        new = self._owner.put_object(**place, Body=b"new")
        upload = self._owner.create_multipart_upload(**place)["UploadId"]
        part = self._owner.upload_part(**place, UploadId=upload, PartNumber=1, Body=PART)
        return Spot(key, old["VersionId"], new["ETag"], upload, part["ETag"])
