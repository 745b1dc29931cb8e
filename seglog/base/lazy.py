"""What a module makes when it is first used, because a short command ends without it: imports, patterns, loggers.

    if TYPE_CHECKING:
        import numpy as np
    else:
        np = LazyModule("numpy")

A use outside of a function would import it at once.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["LazyModule", "import_without", "logger", "pattern"]


class _Imported:
    """Holds the names of a module. A look-up here costs about as much as one in the module.

    A name that the module makes in a `__getattr__` of its own comes from there.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules[vars(self)["__name__"]], name)


class LazyModule:
    """A module that is imported when one of its names is first used. From then on, the object is an `_Imported`.

    `rare` are modules that it imports and seldom uses.
    """

    __spec__ = None  # `import` asks for it when the object stands for its module

    def __init__(self, module: str, *rare: str) -> None:
        self._module = module
        self._rare = rare

    def __getattr__(self, name: str) -> Any:
        _give_way(self._module, self)
        import_without(self._module, *self._rare)
        vars(self).update(vars(sys.modules[self._module]))
        self.__class__ = _Imported  # type: ignore[assignment]
        return getattr(self, name)


def import_without(module: str, *rare: str) -> None:
    """Import a module, and each of the rare ones, which it imports, when it first uses a name of that one."""
    late: dict[str, Any] = {name: LazyModule(name) for name in rare if name not in sys.modules}
    sys.modules.update(late)
    try:
        importlib.import_module(module)
    finally:
        for name in late:
            _give_way(name, late[name])


def _give_way(module: str, late: object) -> None:
    """Let the next import of the module be a real one."""
    if sys.modules.get(module) is late:
        del sys.modules[module]


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
