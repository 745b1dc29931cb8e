"""The tokens of the daemon's clients, and the rights of each.

A token file has one token a line. Blank lines, and lines that begin with `#`, say nothing.

    name:role:topics:sha256        shipper:append:app-*,web:9f86d081884c7d65...
    name:role:topics:sha256:tenant

    name     1 to 64 of A-Z, a-z, 0-9, `.`, `_`, `-`. It is in log lines, in commits and in the operations log
    role     metrics, read, append or admin. Each role may do all that the roles before it may
    topics   globs, separated by commas. A branch has the rights of its topic
    sha256   the SHA-256 of the token, 64 hex digits. The file never has the token itself
    tenant   the name of a tenant. The token is bound to it, and is unknown to each other one

A file with one line without a colon has the token itself: its name is `token`, its role admin, its topics `*`.

RIGHTS-1  Several lines may have the same name and the same SHA-256. The token then has the rights of all of them.
RIGHTS-2  A check looks at names only. So a refusal never says whether a topic exists.
RIGHTS-3  A look-up compares the token with every line, each in constant time.
RIGHTS-4  All lines of a token name the same tenant, or none. So a token is bound as a whole.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from catalog.errors import InvalidName
from catalog.tenants.names import check_tenant
from offload.errors import Misuse, NotAllowed, OffloadError, Refused
from seglog.base.dataclasses import dataclass

RIGHTS_KEY: Final = "seglog.rights"
"""The key of a client's rights in the scope of its request."""
_LEAST_BYTES = 16
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_GLOB = re.compile(r"[A-Za-z0-9._*?\[\]!-]+")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_BEARER = re.compile(rb"bearer +", re.IGNORECASE)
_ALL = "*"


class InvalidTokens(Misuse, OffloadError):
    """The line `line` of the token file `path` is wrong, or the file cannot be read."""

    path: str
    line: int
    reason: str
    message = "{path}, line {line}: {reason}"
    hint = "`seglog token new NAME --role ROLE --topics GLOBS` prints a line for the token file"


class Role(IntEnum):
    """The roles. Each one includes the ones before it."""

    METRICS = 1
    READ = 2
    APPEND = 3
    ADMIN = 4

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Grant:
    """One line of a token file: a role on topics."""

    role: Role
    topics: tuple[str, ...]

    def covers(self, topic: str) -> bool:
        if _ALL in self.topics:
            return True
        plain = topic.partition("@")[0]
        return any(fnmatchcase(plain, glob) for glob in self.topics)


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of one client. `name` is the token's, or empty for a client that needs no token.

    `tenant` is the tenant to which the token is bound, or empty.
    """

    name: str
    grants: tuple[Grant, ...]
    tenant: str = ""

    def check(self, role: Role, topic: str | None = None) -> None:
        """Raise `NotAllowed` if the client lacks the role. With `topic`, on that topic."""
        if not any(grant.role >= role and (topic is None or grant.covers(topic)) for grant in self.grants):
            raise NotAllowed(self.name, role.word, "" if topic is None else f"topic {topic}")

    def check_all_topics(self, role: Role) -> None:
        """Raise `NotAllowed` if the client lacks the role on all topics."""
        if not self.shows_all(role):
            raise NotAllowed(self.name, role.word, "all topics")

    def check_all_tenants(self, role: Role) -> None:
        """Raise `NotAllowed` if the client is bound to a tenant, or lacks the role on all topics."""
        if self.tenant or not self.shows_all(role):
            raise NotAllowed(self.name, role.word, "all tenants")

    def shows(self, topic: str, role: Role = Role.READ) -> bool:
        """Return whether a list of topics shows this one to the client."""
        return any(grant.role >= role and grant.covers(topic) for grant in self.grants)

    def shows_all(self, role: Role = Role.READ) -> bool:
        """Return whether a list of topics shows all of them to the client."""
        return any(grant.role >= role and _ALL in grant.topics for grant in self.grants)


EVERYTHING: Final = Rights("", (Grant(Role.ADMIN, (_ALL,)),))
"""The rights of a client of the Unix socket, and of a daemon without a token file."""


def rights_of(scope: Mapping[str, Any]) -> Rights:
    """Return the rights of the client. Without a guard in front, the caller is this process, and may do everything."""
    rights: Rights = scope.get(RIGHTS_KEY, EVERYTHING)
    return rights


@dataclass(frozen=True, slots=True)
class Tokens:
    """The lines of a token file: the SHA-256 of each token, with its rights."""

    known: tuple[tuple[bytes, Rights], ...]

    def for_tenant(self, tenant: str) -> Tokens:
        """Return the tokens that count in a daemon of this tenant alone: its own, and tokens without a tenant."""
        return Tokens(tuple(pair for pair in self.known if pair[1].tenant in ("", tenant)))

    def rights_of(self, authorization: bytes) -> Rights:
        """Return the rights of the token in a header `Authorization`. Raises `Refused` (401)."""
        scheme, client_rights = _BEARER.match(authorization), self.find(digest_of(authorization))
        if scheme is None or client_rights is None:
            raise Refused(401, "token", "the bearer token is missing or wrong")
        return client_rights

    def find(self, token_digest: bytes) -> Rights | None:
        """Return the rights of the token with this SHA-256 (RIGHTS-3)."""
        client_rights = None
        for digest, rights in self.known:
            if hmac.compare_digest(digest, token_digest):
                client_rights = rights
        return client_rights

    def keeps(self, token_digest: bytes, before: Rights) -> bool:
        """Return whether the token with this SHA-256 has all the rights that it had."""
        now = self.find(token_digest)
        if now is None or now.tenant not in ("", before.tenant):
            return False
        return all(
            any(
                new.role >= old.role and ("*" in new.topics or set(old.topics) <= set(new.topics)) for new in now.grants
            )
            for old in before.grants
        )


def digest_of(authorization: bytes) -> bytes:
    """Return the SHA-256 of the token in a header `Authorization`; that of nothing without a token."""
    scheme = _BEARER.match(authorization)
    return hashlib.sha256(authorization[scheme.end() :].strip() if scheme else b"").digest()


def parse_tokens(text: bytes, file: str) -> Tokens:
    """Return the tokens of a file. `file` is its name in errors. Raises `InvalidTokens` with the number of the line."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith(b"#")]
    if not lines:
        raise InvalidTokens(file, 1, "the file has no token")
    if len(lines) == 1 and b":" not in lines[0][1]:
        return _bare(lines[0][1], file, lines[0][0])
    rights_by_digest: dict[bytes, Rights] = {}
    for number, line in lines:
        digest, rights = _parsed(line, file, number)
        before = rights_by_digest.setdefault(digest, Rights(rights.name, (), rights.tenant))
        if before.name != rights.name:
            raise InvalidTokens(file, number, f"{before.name} and {rights.name} have the same token")
        if before.tenant != rights.tenant:
            raise InvalidTokens(file, number, f"the lines of {rights.name} name several tenants, or only some name one")
        rights_by_digest[digest] = replace(before, grants=(*before.grants, *rights.grants))
    return Tokens(tuple(rights_by_digest.items()))


def token_line(name: str, role: Role, topics: str, token: str, tenant: str = "") -> str:
    """Return the line of a token file. With `tenant`, the token is bound to it. Raises `Misuse`."""
    line = f"{name}:{role.word}:{topics}:{hashlib.sha256(token.encode()).hexdigest()}"
    line += f":{tenant}" if tenant else ""
    try:
        _parsed(line.encode(), "", 1)
    except InvalidTokens as error:
        raise Misuse(error.reason) from None
    return line


def new_token() -> str:
    """Return a random token of 256 bits."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class TokenMade:
    """A new token. `line` is for the token file, which has only the SHA-256. Nothing keeps `token` itself."""

    name: str
    role: str
    topics: str
    line: str
    token: str


def make_token(name: str, role: str, topics: str, tenant: str | None = None) -> TokenMade:
    """Make a token with its line. With `tenant`, it is bound to that. Raises `Misuse`."""
    roles = {role.word: role for role in Role}
    if role not in roles:
        raise Misuse(f"{role!r} is none of {', '.join(roles)}")
    token = new_token()
    return TokenMade(name, role, topics, token_line(name, roles[role], topics, token, tenant or ""), token)


def _bare(token: bytes, file: str, number: int) -> Tokens:
    if len(token) < _LEAST_BYTES:
        raise InvalidTokens(file, number, f"the token has fewer than {_LEAST_BYTES} characters")
    return Tokens(((hashlib.sha256(token).digest(), Rights("token", EVERYTHING.grants)),))


def _parsed(line: bytes, file: str, number: int) -> tuple[bytes, Rights]:
    """Return the SHA-256 of a line, and its rights."""
    parts = [part.strip() for part in line.decode("utf-8", "replace").split(":")]
    if len(parts) not in (4, 5):
        raise InvalidTokens(file, number, "a line is name:role:topics:sha256, or that with :tenant")
    name, role, topics, digest = parts[:4]
    if not _NAME.fullmatch(name):
        raise InvalidTokens(file, number, f"{name[:80]!r} is no name of a token")
    if role not in {member.word for member in Role}:
        raise InvalidTokens(file, number, f"{role[:80]!r} is none of {', '.join(member.word for member in Role)}")
    globs = tuple(glob.strip() for glob in topics.split(","))
    wrong = next((glob for glob in globs if not _GLOB.fullmatch(glob)), None)
    if wrong is not None:
        raise InvalidTokens(file, number, f"{wrong[:80]!r} is no glob of topics")
    if not _SHA256.fullmatch(digest):
        raise InvalidTokens(file, number, "the SHA-256 of a token has 64 hex digits")
    if len(parts) == 5:
        _check_tenant(parts[4], file, number)
    return bytes.fromhex(digest), Rights(name, (Grant(Role[role.upper()], globs),), "".join(parts[4:]))


def _check_tenant(name: str, file: str, number: int) -> None:
    try:
        check_tenant(name)
    except InvalidName as error:
        raise InvalidTokens(file, number, f"{name[:80]!r} is no name of a tenant") from error
