"""The command `seglog token new`."""

from __future__ import annotations

from typing import Annotated

from offload.cli.session import Session
from offload.operations.command import About, Command


def new(
    session: Session,
    name: Annotated[str, About("A name for the log and the oplog.")],
    role: Annotated[str, About("metrics, read, append or admin; each may do all before it.", "--role")],
    topics: Annotated[str, About("The topics, as globs with commas between them.")] = "*",
    tenant: Annotated[str | None, About("Bind the token to this tenant.", "--tenant")] = None,
) -> None:
    """Make a token for a client of the daemon. Prints its line for the token file, and the token on standard error.

    The file has the SHA-256 of the token. Nothing keeps the token itself, so note it down. The daemon reads the file
    at its start and after SIGHUP. The setting is serve.token_file. A token with --tenant is known to that tenant only.
    Example: seglog token new shipper --role append --topics 'app-*' >> tokens
    """
    from offload.token_rights import make_token

    token = make_token(name, role, topics, tenant)
    session.output.show(token, token.line)
    if not session.as_json:
        session.output.note(f"the token of {token.name}, shown only now: {token.token}")


TOKEN_NEW = Command("token/new", new)
