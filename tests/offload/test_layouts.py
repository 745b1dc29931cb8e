"""Test that the byte table at the top of a format module is the layout that its code uses."""

from __future__ import annotations

import re
import struct
from types import ModuleType

import pytest

from offload.format import block, entry, index, trailer

_ROW = re.compile(r"^ {4}(\d+) +(\d+) ", re.MULTILINE)


@pytest.mark.parametrize(
    ("module", "layout"),
    [(block, block.HEADER), (entry, entry.ENTRY), (index, index.HEADER), (trailer, trailer.HEADER)],
)
def test_the_docstrings_table_equals_the_struct(module: ModuleType, layout: struct.Struct):
    assert layout.format[0] == ">", "big-endian, and packed"
    widths = [struct.calcsize(">" + field) for field in layout.format[1:]]
    expected = [(sum(widths[:number]), width) for number, width in enumerate(widths)]
    rows = [(int(offset), int(size)) for offset, size in _ROW.findall(module.__doc__ or "")]
    assert rows[: len(expected)] == expected
