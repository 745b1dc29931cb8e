"""The changes that `seglog topic set` makes, from the texts that people write."""

from __future__ import annotations

from typing import Any

from offload.operations.units import parse_bytes, parse_count, parse_duration_ms, parse_span_s

__all__ = ["attribute_changes", "config_changes"]


def config_changes(
    ttl: str | None, cap_records: str | None, cap_bytes: str | None, discard: str | None, durability: str | None
) -> dict[str, Any]:
    """Return the new fields of the configuration. Raises `InvalidParameters`."""
    changes: dict[str, Any] = {}
    if ttl is not None:
        changes["ttl_ms"] = parse_duration_ms(ttl)
    if cap_records is not None:
        changes["cap_records"] = parse_count(cap_records)
    if cap_bytes is not None:
        changes["cap_bytes"] = parse_bytes(cap_bytes)
    if discard is not None:
        changes["discard"] = discard
    if durability is not None:
        changes["durability"] = durability
    return changes


def attribute_changes(
    offload_after: str | None, offload_hot_bytes: str | None, tail_interval: str | None, window: str | None
) -> dict[str, str | None]:
    """Return the new attributes. None removes an attribute: the setting holds again. Raises `InvalidParameters`."""
    own = {"offload_after_s": offload_after, "offload_hot_bytes": offload_hot_bytes, "tail_interval_s": tail_interval}
    triggers = {key: _trigger(key, text) for key, text in own.items() if text is not None}
    return triggers if window is None else {**triggers, "pitr_window_s": _window(window)}


def _trigger(key: str, text: str) -> str | None:
    from offload.settings import NEVER, trigger_overrides

    if text == "default":
        return None
    if text == NEVER:
        return text
    option = f"--{key.removesuffix('_s').replace('_', '-')}"
    value = parse_bytes(text) if key.endswith("_bytes") else parse_span_s(option, text, ", never or default")
    trigger_overrides({key: str(value)})
    return str(value)


def _window(text: str) -> str | None:
    """Return the window in seconds, as an attribute of the topic."""
    if text in {"default", "0"}:
        return None if text == "default" else text
    return str(parse_span_s("--window", text, ", 0, or default"))
