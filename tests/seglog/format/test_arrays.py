"""numpy is imported by the first use of an array, and not before."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from seglog.format import arrays
from seglog.format.dtypes import ENTRIES


def test_a_log_is_opened_and_closed_without_numpy() -> None:
    code = (
        "import sys, tempfile, seglog\n"
        "with tempfile.TemporaryDirectory() as place:\n"
        "    with seglog.open(place) as log: log.topic('t')\n"
        "    with seglog.open(place, read_only=True) as log: log.topics()\n"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_name_is_that_of_the_module_each_time() -> None:
    later = arrays.Later("seglog.format.dtypes")
    assert vars(later).keys() == {"_module"}
    assert later.ENTRIES is ENTRIES
    assert later.ENTRIES is vars(later)["ENTRIES"]
    assert not hasattr(type(later), "__getattr__")
    assert arrays.np.zeros is np.zeros


def test_a_name_that_the_module_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = arrays.Later("seglog.format.dtypes").nothing
