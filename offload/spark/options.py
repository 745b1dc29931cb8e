"""The options of the Spark source, as a user gives them. This module does no I/O.

    option       default   meaning
    path         -         the remote, s3://bucket/prefix or file:///path: the argument of load()
    topic        -         the topic; TOPIC@BRANCH names a branch of it
    branch       main      the branch
    versionAsOf  newest    an LSN of the branch's history: the state right after that commit; or tag:NAME
    pinSeconds   21600     how long a lease holds a version that is not the newest, so that garbage collection leaves
                           it alone during the job; 0: no lease

Spark gives option names in lower case, and accepts unknown ones in silence. `parse_options` refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from offload.errors import InvalidOption, UnsupportedOption

__all__ = ["KNOWN_OPTIONS", "ReadOptions", "parse_options"]

KNOWN_OPTIONS = ("path", "topic", "branch", "versionAsOf", "pinSeconds")

_MAIN = "main"
_LSN_MAX = 2**63 - 1
_LSN = re.compile(r"[1-9][0-9]{0,19}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,7}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The parsed options. `version` is an LSN, or None with a `tag`. Without either, the newest version is meant."""

    url: str
    topic: str
    branch: str
    version: int | None
    tag: str | None = None
    pin_seconds: int = 21_600


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options in `given`. Raises `UnsupportedOption` and `InvalidOption`."""
    known = {name.lower(): name for name in KNOWN_OPTIONS}
    found: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in known:
            raise UnsupportedOption(name, KNOWN_OPTIONS)
        if not isinstance(value, str):
            raise InvalidOption(known[name.lower()], f"{value!r} is not a text")
        found[known[name.lower()]] = value
    topic, branch = _topic_and_branch(found)
    version, tag = _version(found)
    url = _required(found, "path", 'load("s3://bucket/prefix")')
    return ReadOptions(url, topic, branch, version, tag, _pin_seconds(found))


def _topic_and_branch(found: Mapping[str, str]) -> tuple[str, str]:
    topic, at, named = _required(found, "topic", 'option("topic", "orders")').partition("@")
    branch = found.get("branch", named if at else _MAIN)
    if at and branch != named:
        raise InvalidOption("branch", f"topic says {named!r} and branch says {branch!r}", hint="give one of the two")
    return topic, branch


def _version(found: Mapping[str, str]) -> tuple[int | None, str | None]:
    text = found.get("versionAsOf")
    if text is None:
        return None, None
    if text.startswith("tag:") and text != "tag:":
        return None, text.removeprefix("tag:")
    if not _LSN.fullmatch(text) or int(text) > _LSN_MAX:
        hint = "`seglog log TOPIC` shows the LSNs, `seglog tag list TOPIC` the tags"
        raise InvalidOption("versionAsOf", f"{text!r} is not an LSN, nor tag:NAME", hint=hint)
    return int(text), None


def _pin_seconds(found: Mapping[str, str]) -> int:
    text = found.get("pinSeconds", "21600")
    if not _SECONDS.fullmatch(text):
        raise InvalidOption("pinSeconds", f"{text!r} is not a number of seconds", hint="0 to 9999999")
    return int(text)


def _required(found: Mapping[str, str], name: str, example: str) -> str:
    if not found.get(name):
        raise InvalidOption(name, "it is required", hint=f"for example {example}")
    return found[name]
