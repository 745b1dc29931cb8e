"""A new token for the daemon's token file: `seglog token new`."""

from __future__ import annotations

from offload.errors import Misuse
from offload.token_rights import Role, new_token, token_line
from seglog.base.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenMade:
    """A new token. `line` is for the token file, which has only the SHA-256. Nothing keeps `token` itself."""

    name: str
    role: str
    topics: str
    line: str
    token: str


def new(name: str, role: str, topics: str, tenant: str | None = None) -> TokenMade:
    """Make a token with its line. With `tenant`, it is bound to that. Raises `Misuse`."""
    roles = {role.word: role for role in Role}
    if role not in roles:
        raise Misuse(f"{role!r} is none of {', '.join(roles)}")
    token = new_token()
    return TokenMade(name, role, topics, token_line(name, roles[role], topics, token, tenant or ""), token)
