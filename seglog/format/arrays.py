"""numpy, and the dtypes of this package, imported when a name in them is first used.

The import of numpy takes longer than a short command takes otherwise. A module that needs arrays has

    from seglog.format.arrays import NDArray, dtypes, np

and uses `np.zeros` or `dtypes.ENTRIES` in its functions. A use outside of a function would import numpy at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["Later", "NDArray", "dtypes", "import_now", "np"]


class _Imported:
    """Holds the names of a module. A look-up here costs as much as one in the module."""


class Later:
    """A module that is imported when one of its names is first used. From then on, the object is an `_Imported`."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        vars(self).update(vars(importlib.import_module(self._module)))
        self.__class__ = _Imported  # type: ignore[assignment]
        return getattr(self, name)


def import_now() -> None:
    """Import numpy, before a log is opened for changes. Later, a lack of memory or rights would fail a checkpoint."""
    dtypes.ENTRIES, np.zeros  # noqa: B018 - the first use of a name imports its module


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from seglog.format import dtypes
else:
    NDArray = list  # stands in annotations only
    dtypes, np = Later("seglog.format.dtypes"), Later("numpy")
