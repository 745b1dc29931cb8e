"""The question before a command takes something away.

    standard input and standard error    without --yes
    both are a terminal                  the command first runs with --dry-run, and then asks
    not a terminal                       the command refuses with exit code 2
    whatever, with `confirm = "never"`   no question

If more than half of a topic would go, the answer is its name. Otherwise it is `y` or `yes`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from offload.cli.execution import results_of
from offload.cli.session import Session
from offload.cli.streams import write_error
from offload.errors import NotConfirmed
from offload.operations.command import Command
from offload.operations.preview import WouldTake, would_take_text
from offload.settings import NEVER

__all__ = ["confirmed"]


def confirmed(session: Session, command: Command, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values to run the command with. Raises `NotConfirmed` if the answer is no."""
    if values["yes"] or values["dry_run"]:
        return values
    if session.settings().cli.confirm == NEVER:
        return {**values, "yes": True}
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return values
    previews = list(results_of(session, command, {**values, "dry_run": True}))  # nothing is open during a question
    for found in previews:
        _ask(found)
    return {**values, "yes": True}


def _ask(found: WouldTake) -> None:
    write_error(would_take_text(found) + "\n")
    if found.is_most:
        write_error(f"This is more than half of {found.topic}. Type its name to go on: ")
        answers = {found.topic}
    else:
        write_error("Go on? [y/N] ")
        answers = {"y", "yes", "Y", "Yes"}
    if sys.stdin.readline().strip() not in answers:
        raise NotConfirmed(found.topic)
