"""A check of the totals that an open log maintains, against totals that the test counts itself."""

from __future__ import annotations

from seglog import Log
from seglog.engine.engine import Engine
from seglog.maintenance.checkpoint_plan import has_news, is_to_be_sealed
from tests.seams.log import engine_of, known_to, lengths_of

__all__ = ["check_totals"]


def check_totals(log: Log) -> None:
    """Check two things for every topic. Call this while no append, checkpoint or other change runs.

    1. The byte totals that caps and status use are right.
    2. If the topic changed, the next checkpoint looks at it.
    """
    _check_planned(engine_of(log))
    for name in log.topics():
        state, segments = engine_of(log).state(name), log.topic(name).inner.segments()
        resident = sum(len(chunk.frames) for chunk in state.ephemeral_buffer.chunks)
        unabsorbed = sum(lengths_of(state.tail)) + resident
        retained_from = max(state.floors.earliest_seq, log.topic(name).inner.hot_floor)
        retained = sum(segment.data_bytes for segment in segments if segment.last_seq >= retained_from)
        assert state.ephemeral_buffer.frame_bytes == resident
        assert state.retained_bytes == retained + unabsorbed + state.in_flight_bytes
        hot = sum(segment.data_bytes for segment in segments if segment.is_hot)
        warm = sum(segment.data_bytes for segment in segments if not segment.is_hot)
        assert (log.topic(name).inner.bytes_hot, log.topic(name).inner.bytes_relocated) == (hot + unabsorbed, warm)
        assert len(lengths_of(state.tail)) == len(state.tail)


def _check_planned(engine: Engine) -> None:
    assert not engine.creating
    aging = {id(state) for due_ms, _, state in engine.aging if due_ms < engine.clock.now_ms()}
    for state in engine.states():
        assert state.changed is engine.changed
        if state.topic_id in engine.changed:
            assert engine.changed[state.topic_id] is state
            continue
        assert not has_news(state)
        assert engine.encoder.known(state.topic_id) == state.to_meta()
        assert not is_to_be_sealed(engine, state) or id(state) in aging
    known = known_to(engine.encoder)
    assert known <= {state.topic_id for state in engine.states()} | {*engine.deleted}
