"""numpy, and the dtypes of this package, imported when a name in them is first used.

The import of numpy takes longer than a short command takes otherwise. A module that needs arrays has

    from seglog.format.arrays import NDArray, dtypes, np

and uses `np.zeros` or `dtypes.ENTRIES` in its functions. A use outside of a function would import numpy at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seglog.base.later import Later

__all__ = ["NDArray", "dtypes", "import_now", "np"]


def import_now() -> None:
    """Import numpy and logging, before a log is opened for changes.

    Later, a lack of memory, rights or file descriptors would fail a checkpoint.
    """
    import logging  # noqa: F401 - of the first warning

    dtypes.ENTRIES, np.zeros  # noqa: B018 - the first use of a name imports its module


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from seglog.format import dtypes
else:
    NDArray = list  # stands in annotations only
    dtypes, np = Later("seglog.format.dtypes"), Later("numpy")
