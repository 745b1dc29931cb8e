"""A data directory from a remote alone: `seglog recover`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from offload import recovery
from offload.operations.command import Tell
from offload.recovery import NotRecovered, Recovered
from offload.settings import TenantSettings


def recover(
    directory: Path,
    url: str,
    tell: Tell,
    *,
    topic: str | None,
    writable: bool,
    variables: Mapping[str, str],
    tenant: TenantSettings | None = None,
) -> Iterator[Recovered | NotRecovered]:
    """Yield each topic and branch when it is done. After all of them, raise the error of the last one that failed.

    `tell` takes the number of topics and branches that are done. `variables` is the environment, which overrides
    settings. `tenant` has the role for the remote.
    """

    def on_progress(done: int, total: int) -> None:
        tell("recover", total, done, "topics")

    failed: Exception | None = None
    outcomes = recovery.recover(
        directory, url, only=topic, writable=writable, variables=variables, tenant=tenant, on_progress=on_progress
    )
    for outcome in outcomes:
        if isinstance(outcome, NotRecovered):
            failed = outcome.error
        yield outcome
    if failed is not None:
        raise failed
