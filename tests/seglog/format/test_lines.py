from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.format.lines import Lines

VALUES = st.lists(st.sampled_from([b"", b"\r", b"a", b"\xff\x00", b"long" * 50]), min_size=1)


@settings(deadline=None)
@given(VALUES, st.data())
def test_lines_are_the_values_between_line_feeds(values: list[bytes], data: st.DataObject) -> None:
    lines = Lines.of(b"".join(value + b"\n" for value in values))
    assert [*lines] == values
    assert len(lines) == len(values)
    assert lines.sizes.tolist() == [len(value) for value in values]
    assert lines.size_bytes == sum(map(len, values))
    index = data.draw(st.integers(-len(values), len(values) - 1))
    assert lines[index] == values[index]
    assert lines[index:] == values[index:]


@settings(deadline=None)
@given(VALUES, st.data())
def test_a_part_has_its_own_lines(values: list[bytes], data: st.DataObject) -> None:
    lines = Lines.of(b"".join(value + b"\n" for value in values))
    start = data.draw(st.integers(0, len(values) - 1))
    stop = data.draw(st.integers(start + 1, len(values)))
    part = lines.part(start, stop)
    assert [*part] == values[start:stop]
    assert part.sizes.tolist() == [len(value) for value in values[start:stop]]
    assert lines.behind_feeds(start, stop) == b"".join(b"\n" + value for value in values[start:stop])


def test_there_is_no_line_behind_the_last_one() -> None:
    with pytest.raises(IndexError):
        Lines.of(b"a\n")[1]
