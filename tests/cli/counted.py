"""Run commands in this process, and write a line for each time that one opens seglog.toml.

    python -m tests.cli.counted FILE '["-C", "data", "append", "t"]' '["-C", "data", "serve"]'

The line in FILE is the place of the command in the list, from 0. Python's audit hook reports each open of any module.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from offload.main import main

__all__: list[str] = []


def run(file: str, commands: Sequence[str]) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    place = 0

    def see(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and str(arguments[0]).endswith("/seglog.toml"):
            os.write(fd, b"%d\n" % place)

    sys.addaudithook(see)
    for place, command in enumerate(commands):  # noqa: B007 - the hook reads it
        sys.argv = ["seglog", *json.loads(command)]
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
