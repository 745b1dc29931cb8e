"""Test that a child seldom wakes its parent, which has appends to make. Counted: reports, at any rate of an upload."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from offload.worker import child
from offload.worker.child import FramesRead
from seglog.format.frame import encode_lost
from seglog.format.frames import Frames, take_apart
from tests.seams.archive import reported_by_child

_UPLOAD_S = 2.0
_REPORTS_A_SECOND = 4


@pytest.mark.parametrize("batches", [1, 20, 2_000])
def test_the_number_of_reports_follows_the_time_and_not_the_bytes(
    monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    frames = take_apart([encode_lost(1, 1, 1)])
    now_s, told = 0.0, list[FramesRead]()
    monkeypatch.setattr(child, "time", SimpleNamespace(monotonic=lambda: now_s))

    def source() -> Iterator[Frames]:
        nonlocal now_s
        for _ in range(batches):
            now_s += _UPLOAD_S / batches
            yield frames

    assert sum(map(len, reported_by_child(told.append, source()))) == batches
    assert sum(report.frame_bytes for report in told) == batches * frames.size_bytes
    assert len(told) <= 1 + _UPLOAD_S * _REPORTS_A_SECOND
