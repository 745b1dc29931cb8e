"""What a run asks of the AWS SDK once. It makes thousands of sessions and clients, and each computes the same anew."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from botocore import endpoint_provider, hooks

from catalog.objects.s3_client import new_session

__all__ = ["load_descriptions", "remember_pure_calls"]

_RuleSet = endpoint_provider.RuleSet
_accepts_kwargs = hooks.accepts_kwargs
_alias = hooks.EventAliaser._alias_event_name


def remember_pure_calls(put: Callable[[Any, str, Any], None]) -> None:
    """Replace three functions of botocore by ones that remember their answers, with `put` as `setattr`.

    Each answer depends on the arguments alone, and nothing changes it: the alias of an event's name, whether a function
    takes named arguments, and the rules of endpoints that a description of a service has.
    """
    put(hooks.EventAliaser, "_alias_event_name", _remembered_alias)
    put(hooks, "accepts_kwargs", _accepts)
    put(endpoint_provider, "RuleSet", _rules)


def load_descriptions() -> None:
    """Parse the descriptions of S3 that all clients of the process share, without a thread and without a request."""
    new_session().client("s3", region_name="us-east-1")


_aliases: dict[str, str] = {}


def _remembered_alias(aliaser: hooks.EventAliaser, event_name: str) -> str:
    if event_name not in _aliases:
        _aliases[event_name] = _alias(aliaser, event_name)
    return _aliases[event_name]


_of_function = functools.cache(_accepts_kwargs)


def _accepts(called: Any) -> Any:
    called = getattr(called, "__func__", called)  # a method would keep its object for ever
    return (_of_function if isinstance(called, types.FunctionType) else _accepts_kwargs)(called)


_known_rules: dict[tuple[int, int], tuple[Any, Any, Any]] = {}


def _rules(*, partitions: Any, rules: Any, **given: Any) -> Any:
    key = id(rules), id(partitions)
    if key not in _known_rules:
        # The table holds both, so that no others get their ids.
        _known_rules[key] = (_RuleSet(partitions=partitions, rules=rules, **given), rules, partitions)
    return _known_rules[key][0]
