"""What an open log keeps as running totals, against a count of everything they stand for."""

from __future__ import annotations

from seglog import Log

__all__ = ["check_totals"]


def check_totals(log: Log) -> None:
    """Of every topic: the bytes that caps and status go by. Call it while nothing is on its way."""
    for name in log.topics():
        state, segments = log._engine.state(name), log.topic(name).segments()
        resident = sum(len(chunk.frames) for chunk in state.resident.chunks)
        unabsorbed = sum(state.tail._lengths) + resident
        retained_from = max(state.floors.earliest_seq, log.topic(name).hot_floor)
        retained = sum(segment.data_bytes for segment in segments if segment.last_seq >= retained_from)
        assert state.resident.frame_bytes == resident
        assert state.retained_bytes == retained + unabsorbed + state.in_flight_bytes
        hot = sum(segment.data_bytes for segment in segments if segment.is_hot)
        cold = sum(segment.data_bytes for segment in segments if not segment.is_hot)
        assert (log.topic(name).bytes_hot, log.topic(name).bytes_relocated) == (hot + unabsorbed, cold)
        assert len(state.tail._lengths) == len(state.tail)
