"""The end of requests whose token lost a right while they last.

The operator O, a follower F with a token, and the daemon D:

    1  F asks for new records, or for events. D checks its rights, and may do other work for it first.
    2  F begins to wait. D looks up its token again if the tokens changed since, and keeps the request as an open
       answer in the same step.
    3  O removes the token's line, or one of its topics, and sends SIGHUP.
    4  D reads the token file, and looks up the token of each open answer again.
    5  If the token is unknown or has fewer rights, D cancels the request. F gets its last line or event: `revoked`.

REVOKE-1  After step 4, no record and no event reaches F, also if step 2 comes after it. A follower that waits ends at
    once.
REVOKE-2  A part of a body that comes after step 4 is refused with 401. So no append outlives its token, and no command
    begins after it. An object of a proxy breaks off there. Every other request completes, because it had its rights
    when it began.
REVOKE-3  Nothing follows half a line or half an event. The connection then closes without the end of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from offload.daemon.asgi import Scope, headers_of
from offload.daemon.tickets import token_of_ticket
from offload.errors import Refused
from offload.token_rights import Tokens, digest_of, rights_of

_OPEN_ANSWERS: Final = "seglog.open_answers"
_TOKENS: Final = "seglog.tokens"
_REVOKED: Final = "seglog.revoked"
_LAST: Mapping[bytes, tuple[bytes, bytes]] = {
    b"text/event-stream": (b"\n\n", b'event: end\ndata: {"reason": "revoked"}\n\n'),
    b"application/x-ndjson": (b"\n", b'{"end": "revoked"}\n'),
}


class OpenAnswers:
    """The requests that wait for news. The event loop owns it, and forgets a request whose task has ended.

    `tokens` returns the tokens of now; None if the daemon asks for none.
    """

    def __init__(self, tokens: Callable[[], Tokens | None]) -> None:
        self._tokens = tokens
        self._scopes: WeakKeyDictionary[asyncio.Task[Any], Scope] = WeakKeyDictionary()

    def begin(self, scope: Scope, tokens: Tokens | None) -> None:
        """Let the request look at its rights again. They were checked by `tokens`."""
        scope[_OPEN_ANSWERS], scope[_TOKENS] = self, tokens

    def check_again(self, scope: Scope) -> None:
        """Raise `Refused` (401) if the client has fewer rights than the request began with."""
        tokens = self._tokens()
        if tokens is scope[_TOKENS]:
            return
        if not _keeps(scope, tokens):
            raise refusal()
        scope[_TOKENS] = tokens

    def keep(self, scope: Scope) -> None:
        """Keep the request of the running task. Raises `Refused` as `check_again` does."""
        self.check_again(scope)
        task = asyncio.current_task()
        if task is not None:
            self._scopes[task] = scope

    def end_revoked(self) -> int:
        """End the answers whose token has fewer rights now. Return their number."""
        tokens = self._tokens()
        ended = [task for task, scope in self._scopes.items() if not task.done() and not _keeps(scope, tokens)]
        for task in ended:
            self._scopes.pop(task)[_REVOKED] = True
            task.cancel()
        return len(ended)


def keep_open(scope: Scope) -> None:
    """Let a later reload of the tokens end the answer of the running task. Call it before the first wait for news.

    Raises `Refused` (401) if an earlier reload would have ended it (REVOKE-1).
    """
    answers = scope.get(_OPEN_ANSWERS)
    if isinstance(answers, OpenAnswers):
        answers.keep(scope)


def check_again(scope: Scope) -> None:
    """Raise `Refused` (401) if a reload of the tokens took a right from the client since the request began."""
    answers = scope.get(_OPEN_ANSWERS)
    if isinstance(answers, OpenAnswers):
        answers.check_again(scope)


def refusal() -> Refused:
    """Return the error for a request whose token lost a right."""
    return Refused(401, "token", "the bearer token lost a right")


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
    token = token_of_ticket(scope)
    if token is None:
        token = digest_of(headers_of(scope).get(b"authorization", b""))
    return tokens.keeps(token, rights_of(scope))
