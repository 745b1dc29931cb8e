"""The command `seglog uploads`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.run import describe, each, remark, show
from offload.commands import uploads as use

__all__ = ["uploads"]


@describe(use.uploads)
def uploads(
    context: typer.Context,
    abort: Annotated[bool, typer.Option("--abort")] = False,
    older_than: Annotated[str, typer.Option()] = "24h",
) -> None:
    is_none = True
    for upload in each(context, use.uploads, abort=abort, older_than=older_than):
        is_none = False
        state = "aborted" if upload.aborted else "orphan "
        show(context, upload, f"{state}  {upload.key}  {upload.age_ms / 3_600_000:.1f} h old")
    if is_none:
        remark(context, "none")
