"""The tree of errors that the docstring of a module draws, and the classes that the module has."""

from __future__ import annotations

import re
from types import ModuleType

__all__ = ["defined", "drawn"]


def drawn(module: ModuleType) -> dict[str, str]:
    """Return each class and its base, as the tree in the docstring shows them."""
    path: list[str] = []
    bases: dict[str, str] = {}
    for line in (module.__doc__ or "").splitlines():
        if match := re.match(r"    ((?:[│ ]   )*(?:[├└]── )?)([A-Z]\w+)", line):
            depth = len(match[1]) // 4
            path[depth:] = [match[2]]
            bases[match[2]] = path[depth - 1] if depth else "Exception"
    return bases


def defined(module: ModuleType) -> dict[str, str]:
    """Return each class of the module and its base. A class that a lower room has under the same name counts as one."""
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    bases = {kind.__name__: next(base for base in kind.__mro__ if base.__name__ != kind.__name__) for kind in kinds}
    return {name: base.__name__ for name, base in bases.items()}
