"""What a module makes when it is first used, because a short command ends without it: imports, patterns, loggers.

    if TYPE_CHECKING:
        import numpy as np
    else:
        np = Later("numpy")

A use outside of a function would import it at once.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["Later", "logger", "pattern"]


class _Imported:
    """Holds the names of a module. A look-up here costs as much as one in the module.

    A name that the module makes in a `__getattr__` of its own comes from there.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules[vars(self)["__name__"]], name)


class Later:
    """A module that is imported when one of its names is first used. From then on, the object is an `_Imported`."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        vars(self).update(vars(importlib.import_module(self._module)))
        self.__class__ = _Imported  # type: ignore[assignment]
        return getattr(self, name)


class _Made:
    """Stands for an object that is made when one of its methods is first used."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        method = vars(self)[name] = getattr(self._make(), name)
        return method


if TYPE_CHECKING:
    from logging import getLogger
    from re import compile as pattern

    logger = getLogger
else:

    def pattern(text: str, flags: int = 0) -> _Made:
        """Return a pattern, as `re.compile` does. It is compiled at its first use."""
        return _Made(lambda: re.compile(text, flags))

    def logger(name: str) -> _Made:
        """Return a logger, as `logging.getLogger` does. Its first line imports `logging`."""

        def make() -> Any:
            import logging

            return logging.getLogger(name)

        return _Made(make)
