"""The files that decide who reaches the daemon over TCP: the token file, and the certificate with its key.

    at the start   A file that is wrong ends the daemon.
    at SIGHUP      The daemon reads them again. If one is wrong, it logs the error, and both stay as they were. Answers
                   that wait for news end if their token lost a right (offload.daemon.revocation), and its tickets end.

ACCESS-1  An address that is not loopback needs a token file and TLS, at the start and after each reload. With
    `insecure_behind_proxy`, it needs the token file only.
ACCESS-2  A new certificate is loaded into a context of its own. So a wrong one never reaches a connection.
ACCESS-3  Only its owner may write the token file. Another writer could give itself any right.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from offload.daemon.revocation import OpenAnswers
from offload.daemon.tickets import Tickets
from offload.errors import Misuse
from offload.settings import ServeSettings
from offload.token_rights import Tokens, parse_tokens

_log = logging.getLogger("seglog.daemon")


class Access:
    """The tokens of a running daemon, its tickets, and its TLS. `tokens` is None if the daemon asks for none."""

    def __init__(self, settings: ServeSettings, tenant: str | None = None) -> None:
        """Read the token file. Raises `Misuse`, `InvalidTokens`.

        `tenant` is the name of the tenant, empty for a directory without one. With None, all tokens count.
        """
        self._tenant = tenant
        self.tokens = self._tokens(settings)
        self.open_answers = OpenAnswers(lambda: self.tokens)
        self.tickets = Tickets()
        _check_address(settings, self.tokens)

    def reload(self, settings: ServeSettings, listening: Iterable[ssl.SSLContext]) -> None:
        """Read both files again. The contexts of the listening sockets pass new connections to the new certificate."""
        try:
            tokens = self._tokens(settings)
            _check_address(settings, tokens)
            fresh = _context(settings) if settings.tls_certificate else None
        except (Misuse, OSError) as error:
            _log.error("tokens and certificates stay as they are: %s", error)
            return
        self.tokens = tokens
        self.tickets.end_revoked(tokens)
        ended = self.open_answers.end_revoked()
        if ended:
            _log.info("%d open answers end: their tokens are gone, or have fewer rights", ended)
        if fresh is not None:
            for context in listening:
                context.sni_callback = _passing_to(fresh)

    def _tokens(self, settings: ServeSettings) -> Tokens | None:
        tokens = _tokens(settings)
        return tokens if tokens is None or self._tenant is None else tokens.for_tenant(self._tenant)


def _passing_to(fresh: ssl.SSLContext) -> Any:
    def choose(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = fresh

    return choose


def _context(settings: ServeSettings) -> ssl.SSLContext:
    """Return a context with the certificate. Raises `OSError`: `ssl.SSLError` is one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(settings.tls_certificate, settings.tls_key or None)
    return context


def _tokens(settings: ServeSettings) -> Tokens | None:
    if not settings.token_file:
        return None
    path = Path(settings.token_file)
    try:
        text = path.read_bytes()
        mode = path.stat().st_mode
    except OSError as error:
        raise Misuse(f"cannot listen on {settings.host}: the token file cannot be read: {error}") from error
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        told = f"cannot listen on {settings.host}: others may write the token file {path}"
        raise Misuse(told, hint=f"chmod 600 {path}")
    if mode & stat.S_IROTH:
        _log.warning("any user of this machine may use the token file %s: chmod 600 it", path)
    return parse_tokens(text, str(path))


def _check_address(settings: ServeSettings, tokens: Tokens | None) -> None:
    """Raise `Misuse` if the host is not loopback and the token file or TLS is missing (ACCESS-1)."""
    if not settings.host or settings.host == "localhost":
        return
    try:
        is_loopback = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        is_loopback = False
    is_covered = bool(settings.tls_certificate) or settings.insecure_behind_proxy
    if not is_loopback and (tokens is None or not is_covered):
        hint = "set serve.token_file, serve.tls_certificate and serve.tls_key, or listen on 127.0.0.1"
        raise Misuse(f"cannot listen on {settings.host}: others could read and write the log", hint=hint)
