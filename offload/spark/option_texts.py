"""The texts of options, and how each kind of text is read. `offload.spark.options` says what the options mean.

Every method raises `InvalidOption` for a text that does not fit. This module does no I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from offload.errors import InvalidOption

NUMBER = re.compile(r"[1-9][0-9]{0,19}", re.ASCII)
INT64_MAX = 2**63 - 1
_MILLISECONDS = re.compile(r"[0-9]{1,15}", re.ASCII)
_BYTES = re.compile(r"([1-9][0-9]{0,17})([kmgt]?)b?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_OFFSETS = {-2: "earliest", -1: "latest"}
_TIME_HINT = "for example 2026-11-22T09:30:00Z, milliseconds since 1970, or `2 hours ago`"
#: What Spark adds to the options of a table in its catalog, besides each option once more as `option.NAME`.
_OF_A_TABLE = frozenset({"comment", "external", "is_managed_location", "location", "owner", "provider"})


def moment_ms(text: str, now_ms: int) -> int:
    """Return the time that `text` means, in milliseconds. Raises `InvalidTarget` and `InvalidName`."""
    from catalog.errors import InvalidTarget  # imported late: workers load this module
    from catalog.timeline import Time, parse_target

    if _MILLISECONDS.fullmatch(text):
        return int(text)
    target = parse_target(text, now_ms=now_ms)
    if not isinstance(target, Time):
        raise InvalidTarget(text, "a time is needed here")
    return target.ms


def named(
    given: Mapping[str, str], known: Iterable[str], aliases: Mapping[str, str], elsewhere: Mapping[str, str]
) -> dict[str, str]:
    """Return the options by their own names. An alias keeps its name, for its form may differ.

    `elsewhere` has options of other calls, and the name of the call that takes each. Raises `InvalidOption` for
    them, and for unknown ones. A table of Spark's catalog comes with its properties, among them the provider.
    """
    is_table = given.get("provider") == "seglog"
    spelled = {name.lower(): name for name in (*known, *aliases)}
    others = {name.lower(): name for name in elsewhere}
    found: dict[str, str] = {}
    for name, value in given.items():
        own = spelled.get(name.lower())
        if own is None and is_table and (name in _OF_A_TABLE or name.startswith("option.")):
            continue
        if own is None:
            other = others.get(name.lower(), name)
            raise InvalidOption.unknown(other, known, elsewhere.get(other))
        if not isinstance(value, str):
            raise InvalidOption(own, f"{value!r} is not a text")
        found[own] = value
    for alias, name in aliases.items():
        if alias in found and name in found:
            raise InvalidOption(alias, f"it means the same as {name}", hint="give one of the two")
    return found


class OptionTexts:
    """The texts of the options, by name."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def get(self, name: str) -> str | None:
        return self._texts.get(name)

    def has(self, name: str) -> bool:
        return name in self._texts

    def required(self, name: str, example: str) -> str:
        if not self._texts.get(name):
            raise InvalidOption(name, "it is required", hint=f"for example {example}")
        return self._texts[name]

    def choice(self, name: str, choices: tuple[str, ...]) -> str | None:
        text = self._texts.get(name)
        if text is not None and text.lower() not in choices:
            raise InvalidOption(name, f"{text!r} is none of {', '.join(choices)}")
        return None if text is None else text.lower()

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.choice(name, ("false", "true"))
        return default if text is None else text == "true"

    def number(self, name: str, default: int, form: re.Pattern[str], wanted: str) -> int:
        text = self._texts.get(name)
        if text is None:
            return default
        if not form.fullmatch(text) or int(text) > INT64_MAX:
            raise InvalidOption(name, f"{text!r} is not {wanted}")
        return int(text)

    def size_bytes(self, name: str, default: int) -> int:
        text = self._texts.get(name)
        if text is None:
            return default
        found = _BYTES.fullmatch(text)
        if found is None:
            raise InvalidOption(name, f"{text!r} is not a size", hint="for example 134217728, or 128m")
        return min(int(found[1]) * _UNITS[found[2].lower()], INT64_MAX)

    def time(self, name: str) -> str | None:
        text = self._texts.get(name)
        if text is None:
            return None
        from catalog.errors import InvalidName, InvalidTarget

        try:
            moment_ms(text, 0)
        except (InvalidName, InvalidTarget) as error:
            raise InvalidOption(name, str(error), hint=_TIME_HINT) from error
        return text

    def seqs(
        self, name: str, seq_of: Callable[[str, object], int | None]
    ) -> tuple[int | None, dict[str, int | None]] | None:
        """Return the seq for every topic, and the seqs of single topics. `seq_of` reads one of them."""
        text = self._texts.get(name)
        if text is None:
            return None
        if text.lstrip().startswith("{"):
            return None, {topic: seq_of(name, seq) for topic, seq in _object(name, text).items()}
        return seq_of(name, int(text) if NUMBER.fullmatch(text) else text), {}

    def offsets(
        self, name: str, seq_of: Callable[[str, object], int | None], added: int
    ) -> tuple[int | None, dict[str, int | None]] | None:
        """Return the same from an option of Kafka's. `added` is what makes a seq of an offset."""
        text = self._texts.get(name)
        if text is None:
            return None
        if not text.lstrip().startswith("{"):
            return seq_of(name, text), {}
        offsets = {topic: _offset(name, each) for topic, each in _object(name, text).items()}
        return None, {topic: seq_of(name, _OFFSETS.get(each, each + added)) for topic, each in offsets.items()}


def _offset(name: str, found: object) -> int:
    """Return the offset in Kafka's object of a topic: {"0": N}."""
    offset = found.get("0") if isinstance(found, dict) and len(found) == 1 else None
    if type(offset) is not int:
        raise InvalidOption(name, f"{found!r} is not an offset", hint='for example {"orders": {"0": 23}}')
    return offset


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidOption(name, f"it is no JSON: {error}") from error
    return dict(found)
