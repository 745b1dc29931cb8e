"""numpy is imported by the first use of an array, or by the opening of a log for changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import seglog
from seglog.base.lazy import LazyModule
from seglog.format import arrays
from seglog.format.dtypes import ENTRIES


@pytest.mark.parametrize("read_only", [True, False])
def test_a_log_is_opened_with_numpy_only_if_it_may_change(tmp_path: Path, *, read_only: bool) -> None:
    """Later, a lack of memory or of rights would fail the import in the middle of a checkpoint."""
    seglog.open(tmp_path).close()
    code = (
        "import sys, seglog\n"
        f"with seglog.open(sys.argv[1], read_only={read_only}) as log: log.topics()\n"
        "print('numpy' in sys.modules)"
    )
    line = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout == f"{not read_only}\n"


def test_a_name_is_that_of_the_module_each_time() -> None:
    later = LazyModule("seglog.format.dtypes")
    assert vars(later).keys() == {"_module", "_rare"}
    assert later.ENTRIES is ENTRIES
    assert later.ENTRIES is vars(later)["ENTRIES"]
    assert arrays.np.zeros is np.zeros


def test_a_name_that_the_module_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = LazyModule("seglog.format.dtypes").nothing
