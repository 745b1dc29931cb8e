"""The conditions of `read` and `delete` on a record: its time, its tag, and a pattern in its value.

A pattern is a regular expression of Python's `re` over the bytes of the value. In it, `\\xff` is the byte 255, and `.`
is one byte. With `google-re2` installed, RE2 matches, in a time that grows with the length of the value alone. Without
it `re` matches, which takes very long for some patterns, such as `(a+)+$`. RE2 knows no look-around and no references
to groups. A pattern that RE2 refuses goes to `re`.

A thread that runs `re` stops all others of the process. So a daemon takes a pattern only for RE2, and its client looks
for the others itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, TypeAlias

from offload.errors import Misuse
from offload.operations.command import About, Directory
from offload.operations.printing import time_ms
from seglog import Record
from seglog.base.dataclasses import dataclass
from seglog.values.record import tag_fits

Since: TypeAlias = Annotated[
    str | None, About("Only records of this time or later, such as 2026-11-21T09:30Z.", names="time")
]
Until: TypeAlias = Annotated[str | None, About("Only records of this time or earlier.", names="time")]
Tag: TypeAlias = Annotated[str | None, About("Only records with this tag; TEXT* means all tags that begin with TEXT.")]
Pattern: TypeAlias = Annotated[
    str | None, About("Only records with bytes that this regular expression matches.", metavar="PATTERN")
]
Fixed: TypeAlias = Annotated[bool, About("With --grep: PATTERN is plain text.", "-F --fixed")]


@dataclass(frozen=True, slots=True)
class Match:
    """Conditions that all hold; None is no condition. Times are inclusive. A `*` at the end of `tag` is any rest."""

    since_ms: int | None = None
    until_ms: int | None = None
    tag: str | None = None
    has_pattern: Callable[[bytes], object] | None = None

    @property
    def is_indexed(self) -> bool:
        """Return whether an index can tell of some records that they do not match."""
        return self.since_ms is not None or self.until_ms is not None or self.tag is not None

    def fits(self, record: Record) -> bool:
        """Return whether a record matches. The caller stops at `until_ms`."""
        if self.since_ms is not None and record.ts_ms < self.since_ms:
            return False
        if self.tag is not None and not tag_fits(record.tag, self.tag):
            return False
        return self.has_pattern is None or bool(self.has_pattern(record.value))


def conditions(
    directory: Directory, since: str | None, until: str | None, tag: str | None, grep: str | None, *, fixed: bool
) -> Match:
    """Return the conditions of a command that works on a directory. Raises `Misuse`, `InvalidTarget`."""
    serves_others = grep is not None and directory.host.serves_others
    return match_of(time_ms(since), time_ms(until), tag, grep, fixed=fixed, serves_others=serves_others)


def match_of(
    since_ms: int | None,
    until_ms: int | None,
    tag: str | None,
    grep: str | None,
    *,
    fixed: bool,
    serves_others: bool = False,
) -> Match:
    """Return the conditions of a command's options. Raises `Misuse`."""
    if fixed and grep is None:
        raise Misuse("--fixed goes with --grep")
    return Match(
        since_ms, until_ms, tag, None if grep is None else pattern_of(grep, fixed=fixed, serves_others=serves_others)
    )


def pattern_of(text: str, *, fixed: bool = False, serves_others: bool = False) -> Callable[[bytes], object]:
    """Return a function that says whether a value has the pattern. Raises `Misuse`."""
    pattern = text.encode("utf-8", "surrogateescape")
    if fixed:
        return lambda value: pattern in value
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        hint = "--fixed looks for it as it is"
        raise Misuse(f"--grep {text!r} is no regular expression: {error}", hint=hint) from None
    search = _search_of_re2(pattern)
    if search is None and serves_others:
        hint = "use `fixed`, or look for the pattern in what `read` returns"
        raise Misuse("the daemon takes a pattern only for RE2, which is missing or refuses it", hint=hint)
    return search or compiled.search


def _search_of_re2(pattern: bytes) -> Callable[[bytes], object] | None:
    """Return the search of RE2; None if it is not installed, or does not know the pattern.

    RE2 takes `{,3}` for plain text, and Python for a repetition, so such a pattern is for `re`.
    """
    if b"{," in pattern:
        return None
    try:
        import re2
    except ImportError:
        return None
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # each byte is a character
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options).search  # type: ignore[no-any-return]
    except re2.error:
        return None
