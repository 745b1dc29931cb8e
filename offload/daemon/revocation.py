"""The end of answers that stay open after their token lost a right.

The operator O, a follower F with a token, and the daemon D:

    1  F asks for new records, or for events. D keeps its request as an open answer.
    2  O removes the token's line, or one of its topics, and sends SIGHUP.
    3  D reads the token file, and looks up the token of each open answer again.
    4  If the token is unknown or has fewer rights, D cancels the request. F gets its last line or event: `revoked`.

REVOKE-1  After step 3, no record and no event reaches F. A follower that waits ends at once.
REVOKE-2  Every other request completes, because it had its rights when it began.
REVOKE-3  Nothing follows half a line or half an event. The connection then closes without the end of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from offload.daemon.asgi import Scope, headers_of
from offload.errors import Refused
from offload.rights import Rights, Tokens, rights_of

__all__ = ["OPEN_ANSWERS", "OpenAnswers", "is_revoked", "keep_open", "last_words"]

OPEN_ANSWERS: Final = "seglog.open_answers"
"""The key in a scope of the daemon's open answers, for requests with a token."""

_REVOKED = "seglog.revoked"
_LAST: Mapping[bytes, tuple[bytes, bytes]] = {
    b"text/event-stream": (b"\n\n", b'event: end\ndata: {"reason": "revoked"}\n\n'),
    b"application/x-ndjson": (b"\n", b'{"end": "revoked"}\n'),
}


class OpenAnswers:
    """The requests that wait for news. The event loop owns it, and forgets a request whose task has ended."""

    def __init__(self) -> None:
        self._scopes: WeakKeyDictionary[asyncio.Task[Any], Scope] = WeakKeyDictionary()

    def add(self, scope: Scope) -> None:
        """Keep the request of the running task."""
        task = asyncio.current_task()
        if task is not None:
            self._scopes[task] = scope

    def check(self, tokens: Tokens | None) -> int:
        """End the answers whose token has fewer rights now. Return their number."""
        ended = [each for each, scope in self._scopes.items() if not each.done() and not _keeps(scope, tokens)]
        for task in ended:
            self._scopes.pop(task)[_REVOKED] = True
            task.cancel()
        return len(ended)


def keep_open(scope: Scope) -> None:
    """Let a later reload of the tokens end the answer of the running task."""
    answers = scope.get(OPEN_ANSWERS)
    if isinstance(answers, OpenAnswers):
        answers.add(scope)


def is_revoked(scope: Scope) -> bool:
    """Return whether a reload of the tokens cancelled the request."""
    return _REVOKED in scope


def last_words(media_type: bytes, end: bytes) -> bytes | None:
    """Return the end of an answer whose last bytes were `end`; None if nothing fits there (REVOKE-3)."""
    mark, words = _LAST.get(media_type.partition(b";")[0].strip(), (b"", None))
    return words if words is not None and (not end or end.endswith(mark)) else None


def _keeps(scope: Scope, tokens: Tokens | None) -> bool:
    """Return whether the client of a request has all the rights that it had."""
    if tokens is None:
        return True
    try:
        return _covers(tokens.rights_of(headers_of(scope).get(b"authorization", b"")), rights_of(scope))
    except Refused:
        return False


def _covers(now: Rights, before: Rights) -> bool:
    if now.tenant not in ("", before.tenant):
        return False
    return all(
        any(new.role >= old.role and ("*" in new.topics or set(old.topics) <= set(new.topics)) for new in now.grants)
        for old in before.grants
    )
