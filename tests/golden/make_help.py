"""Makes the golden help of all commands, at two widths. `make docs` writes it."""

from __future__ import annotations

from pathlib import Path

from offload.cli.help import help_text
from offload.cli.top import GROUPS
from offload.operations.command_list import COMMANDS

WIDTHS = (80, 200)


def place(columns: int) -> Path:
    return Path(__file__).parent / f"help_{columns}.txt"


def make(columns: int) -> str:
    full = f"$ seglog help --all\n{help_text('', columns, is_full=True)}\n"
    return full + "\n".join(
        f"$ seglog {path.replace('/', ' ')}\n{help_text(path, columns)}" for path in ("", *GROUPS, *COMMANDS)
    )
