"""A linter of our policies: policy_sentry's copy of the AWS references says which actions, resources and keys exist.

LINT-1  Each action exists. Each resource is of a kind that the action takes. Each condition key is one of the action,
    or a global one.
LINT-2  An Allow names its actions without a wildcard, and its resources with the bucket or the key.
LINT-3  No action changes permissions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from policy_sentry.analysis.analyze import analyze_by_access_level
from policy_sentry.querying.actions import get_action_data

from catalog.tenants.policies import OPERATORS

__all__ = ["findings"]

_GLOBAL = ("aws:PrincipalTag/", "aws:SecureTransport", "aws:SourceIp")
_ELEMENTS = {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
_PARTS = {"Partition": "aws", "BucketName": r"[a-z0-9.-]+", "KeyId": r"[A-Za-z0-9-]+", "Region": r"[a-z0-9-]+"}


def findings(policy: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the policy, each in a line."""
    found = [] if policy.get("Version") == "2012-10-17" else ["the version knows no variables"]
    sids = [each.get("Sid", "") for each in policy["Statement"]]
    if len(set(sids)) < len(sids) or not all(re.fullmatch("[A-Za-z0-9]+", sid) for sid in sids):
        found.append(f"the Sids {sids} are not unique words")
    for statement in policy["Statement"]:
        found += [f"{statement.get('Sid')}: {each}" for each in _of_statement(statement)]
    return found + [f"{each} changes permissions" for each in _permissions(policy)]


def _permissions(policy: Mapping[str, Any]) -> list[str]:
    allowed = [each for each in policy["Statement"] if each.get("Effect") == "Allow"]
    return analyze_by_access_level({**policy, "Statement": allowed}, "Permissions management") if allowed else []


def _of_statement(statement: Mapping[str, Any]) -> Iterator[str]:
    if set(statement) - _ELEMENTS or statement.get("Effect") not in {"Allow", "Deny"}:
        yield f"elements {sorted(statement)}"
    for action in statement["Action"]:
        if "*" in action or "?" in action:
            if statement["Effect"] == "Allow":
                yield f"{action} has a wildcard"
            continue
        yield from _of_action(action, statement)
    if statement["Effect"] == "Allow":
        yield from (f"{each} is everything" for each in statement["Resource"] if ":::*" in each or each == "*")
    yield from (f"{each} is no operator" for each in statement.get("Condition", {}) if _bare(each) not in OPERATORS)


def _of_action(action: str, statement: Mapping[str, Any]) -> Iterator[str]:
    service, _, name = action.partition(":")
    rows = get_action_data(service, name).get(service, [])
    if action not in {row["action"] for row in rows}:
        yield f"{action} is no action"
        return
    kinds = [row for row in rows if row["resource_arn_format"] != "*"]
    for resource in statement["Resource"]:
        fit = [row for row in kinds if _pattern(row["resource_arn_format"]).fullmatch(resource)]
        if not fit:
            yield f"{action} takes no {resource}"
        for key in [key for block in statement.get("Condition", {}).values() for key in block]:
            if not key.startswith(_GLOBAL) and not any(key in row["condition_keys"] for row in fit):
                yield f"{action} has no condition key {key}"


def _bare(operator: str) -> str:
    return operator.removesuffix("IfExists")


def _pattern(arn_format: str) -> re.Pattern[str]:
    """Return the pattern of a kind of resource, such as `arn:${Partition}:s3:::${BucketName}/${ObjectName}`."""
    pieces = re.split(r"\$\{(\w+)\}", arn_format)
    return re.compile("".join(_PARTS.get(each, ".+") if n % 2 else re.escape(each) for n, each in enumerate(pieces)))
