"""A small reference evaluator of IAM policies, for the parts of the language that our policies use.

It judges what MinIO cannot: `aws:PrincipalTag` and `s3:if-none-match`. tests/iam compares it with MinIO on the rest.

    is_allowed([policy], Request("s3:GetObject", "arn:aws:s3:::archive/acme/x", {"aws:SecureTransport": "true"}))

EVAL-1  A request is allowed if a statement allows it and none denies it.
EVAL-2  A statement is met if an action, a resource and all conditions match. Actions and names of condition keys match
    in any case, resources and values as they are. `*` matches any text, also none, and `?` one character.
EVAL-3  Several values of one key are alternatives. A negated operator is met if no value matches.
EVAL-4  If the request lacks the key, a negated operator is met and any other is not. `Null` asks for just that.
EVAL-5  `${key}` stands for the value in the request, whose characters have no meaning. A statement with a variable
    that has no value is never met, also a Deny.

Any other element or operator raises `Unsupported`, so that no policy passes by what the evaluator ignores.
Source: the IAM reference of policy elements, and of the logic of policy evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Request", "Unsupported", "is_allowed"]

_ELEMENTS = {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_LITERALS = {"*", "?", "$"}


class Unsupported(ValueError):
    """The policy has an element, an operator or a principal that the evaluator does not know."""


class _Unresolved(Exception):
    """A variable has no value in the request."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `context` has the values of its condition keys, and only those that the request has."""

    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict)

    def value(self, key: str) -> str | None:
        return next((value for name, value in self.context.items() if name.lower() == key.lower()), None)


def is_allowed(policies: Iterable[Mapping[str, Any]], request: Request) -> bool:
    """Return whether the policies together allow the request (EVAL-1). Raises `Unsupported`."""
    statements = [each for policy in policies for each in policy["Statement"]]
    met = [each["Effect"] for each in statements if _is_met(each, request)]
    if set(met) - {"Allow", "Deny"}:
        raise Unsupported(f"effects {met}")
    return "Allow" in met and "Deny" not in met


def _is_met(statement: Mapping[str, Any], request: Request) -> bool:
    if set(statement) - _ELEMENTS or statement.get("Principal", "*") != "*":
        raise Unsupported(f"elements {sorted(statement)}")
    conditions = statement.get("Condition", {})
    tests = [(_test(operator, request), block) for operator, block in conditions.items()]
    try:  # every part is resolved, so that no match hides a variable without a value
        actions = {_matcher(each.lower(), request)(request.action.lower()) for each in _list(statement["Action"])}
        resources = {_matcher(each, request)(request.resource) for each in _list(statement["Resource"])}
        met = {test(key, _list(wanted)) for test, block in tests for key, wanted in block.items()}
    except _Unresolved:
        return False
    return True in actions and True in resources and False not in met


def _test(operator: str, request: Request) -> Callable[[str, Sequence[str]], bool]:
    """Return the function that judges a key and its values by an operator."""
    if operator == "Null":
        return lambda key, wanted: any((request.value(key) is None) == _truth(each) for each in wanted)
    if operator == "Bool":
        return lambda key, wanted: (
            (found := request.value(key)) is not None and any(_truth(found) == _truth(each) for each in wanted)
        )
    bare = operator.replace("Not", "", 1)
    if bare not in {"StringEquals", "StringLike"}:
        raise Unsupported(f"operator {operator}")
    is_negated = bare != operator

    def judge(key: str, wanted: Sequence[str]) -> bool:
        matchers = [_matcher(each, request, has_wildcards=bare == "StringLike") for each in wanted]
        found = request.value(key)
        if found is None:
            return is_negated
        return any(matches(found) for matches in matchers) != is_negated

    return judge


def _matcher(pattern: str, request: Request, *, has_wildcards: bool = True) -> Callable[[str], bool]:
    """Return the function that says whether a text is of the pattern. Raises `_Unresolved` (EVAL-5)."""
    pieces = _VARIABLE.split(pattern)
    source = ""
    for place, piece in enumerate(pieces):
        if place % 2:
            source += re.escape(piece if piece in _LITERALS else _resolved(piece, request))
        elif has_wildcards:
            source += re.escape(piece).replace(r"\*", ".*").replace(r"\?", ".")
        else:
            source += re.escape(piece)
    compiled = re.compile(source, re.DOTALL)
    return lambda text: compiled.fullmatch(text) is not None


def _resolved(key: str, request: Request) -> str:
    found = request.value(key)
    if found is None:
        raise _Unresolved(key)
    return found


def _truth(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise Unsupported(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _list(given: str | Sequence[str]) -> Sequence[str]:
    return [given] if isinstance(given, str) else given
