"""An S3 server whose answers the test writes."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from tests.answering import Answer, AnsweringServer, Asked

__all__ = ["BREAKS_OFF", "ScriptedS3"]

BREAKS_OFF = (206, "breaks off")


class ScriptedS3(AnsweringServer):
    """A server that gives scripted answers, and records the requests with their headers and credentials.

    An answer is a status and a code. None resets the connection. `BREAKS_OFF` sends half of the announced bytes.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: list[tuple[int, str] | None] = []
        self.asked: list[str] = []
        self.authorizations: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.bodies: list[bytes] = []
        super().__init__(self._decide, tls)

    def _decide(self, asked: Asked) -> Answer | None:
        self.bodies.append(asked.body)
        self.headers.append(asked.headers)
        self.asked.append(f"{asked.method} {asked.target}")
        self.authorizations.append(asked.headers.get("Authorization", ""))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            return None
        if answer == BREAKS_OFF:
            stamps = {"ETag": '"one"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}
            return Answer(206, b"01", {"Content-Range": "bytes 0-3/8", **stamps}, length=4)
        status, code = answer
        body = f"<Error><Code>{code}</Code><Message>scripted</Message></Error>".encode() if code else b""
        return Answer(status, body)
