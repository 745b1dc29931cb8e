"""numpy, and the dtypes of this package, imported when a name in them is first used.

The import of numpy takes longer than a short command takes otherwise. A module that needs arrays has

    from seglog.format.arrays import NDArray, dtypes, np

and uses `np.zeros` or `dtypes.ENTRIES` in its functions. A use outside of a function would import numpy at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seglog.base.lazy import LazyModule

__all__ = ["NDArray", "dtypes", "np"]


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from seglog.format import dtypes
else:
    NDArray = list  # stands in annotations only
    dtypes, np = LazyModule("seglog.format.dtypes"), LazyModule("numpy")
