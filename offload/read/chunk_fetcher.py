"""GETs of chunks, each made once for everybody who wants it at that time.

    state     what is true                                     step that follows
    WAITING   registered, somebody wants it                    run, by a thread of the pool or by who needs it first
    RUNNING   its GET is made; room in the cache is reserved   done
    DONE      bytes or an error are there                      leave, by each who wanted it; the last one frees it

F1  A flight is one GET for chunks of one object with at most `_GAP_BYTES` between them.
F2  Who wants a chunk that is in a flight joins it. Who needs it before a thread of the pool came to it runs it himself,
    so nobody waits for a full pool.
F3  A flight that nobody wants any more is not run; one that runs is left to end, at the store's timeout at the latest.
F4  An error is shown to whoever ran the flight because he needed it. The others ask once more for the chunk alone.
F5  Bytes are counted in the budget from registration until the last one leaves.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from catalog import Codec, SegmentView
from catalog.format.keys import Key
from catalog.objects.base import ObjectStore
from offload.format.block import ChunkRef
from offload.format.metadata import SegmentIndex
from offload.read.budget import ByteBudget
from offload.read.cache import ChunkCache
from offload.read.pool import Pool
from seglog.process.ownership import Owned

__all__ = ["Flight", "Flights", "Place"]

_GAP_BYTES = 64 * 1024  # a block's header and padding, or a chunk that the cache has: cheaper than another GET


@dataclass(frozen=True, slots=True)
class Place:
    """A chunk of a segment, and where it is. Of its records those from `first` to `last` are wanted."""

    view: SegmentView
    index: SegmentIndex
    chunk: ChunkRef
    key: Key
    first: int
    last: int

    @property
    def id(self) -> tuple[bytes, int]:
        return self.view.ref.sid.raw, self.chunk.offset

    @property
    def codec(self) -> Codec:
        return self.view.ref.codec


class _State(Enum):
    WAITING = 1
    RUNNING = 2
    DONE = 3


class Flight:
    """One GET. Its fields belong to `Flights`."""

    __slots__ = ("body", "done", "error", "is_scan", "length", "places", "start", "state", "users")

    def __init__(self, places: list[Place], *, is_scan: bool) -> None:
        last = places[-1].chunk
        self.places = places
        self.start = places[0].chunk.offset
        self.length = last.offset + last.stored_length - self.start
        self.is_scan = is_scan
        self.users = 0
        self.state = _State.WAITING
        self.done = threading.Event()
        self.body = b""
        self.error: BaseException | None = None


class Flights(Owned):
    """All that are on their way, of all readers of one store."""

    def __init__(self, store: ObjectStore, cache: ChunkCache | None, budget: ByteBudget, pool: Pool) -> None:
        self._store = store
        self._cache = cache
        self._budget = budget
        self._pool = pool
        self._lock = threading.Lock()
        self._flights: dict[tuple[bytes, int], Flight] = {}

    def join(self, places: Sequence[Place], *, is_scan: bool) -> list[Flight | None]:
        """For each place a flight that brings it, new or another's; None for one that the cache has.

        Each flight that was given must be left as often as it was given. `is_scan`: the cache need not keep it (Y1).
        """
        found = self._join(places, is_scan=is_scan, is_ahead=False)
        assert found is not None  # noqa: S101 - only what is ahead asks the budget
        return found

    def join_ahead(self, places: Sequence[Place]) -> list[Flight | None] | None:
        """As `join`, for what is not needed yet: begun by the pool, and None when the budget does not allow it."""
        return self._join(places, is_scan=True, is_ahead=True)

    def _join(self, places: Sequence[Place], *, is_scan: bool, is_ahead: bool) -> list[Flight | None] | None:
        found: list[Flight | None] = []
        runs: list[list[Place]] = []
        with self._lock:
            for place in places:
                flight = self._flights.get(place.id)
                if flight is None and not self._is_cached(place):
                    if not (runs and _is_near(runs[-1][-1], place)):
                        runs.append([])
                    runs[-1].append(place)
            flights = [Flight(run, is_scan=is_scan) for run in runs]
            size_bytes = sum(flight.length for flight in flights)
            if not is_ahead:
                self._budget.take(size_bytes)
            elif not self._budget.try_take(size_bytes):
                return None
            for flight in flights:
                self._flights.update({place.id: flight for place in flight.places})
            for place in places:
                joined = self._flights.get(place.id)
                if joined is not None:
                    joined.users += 1
                found.append(joined)
        if is_ahead:
            for flight in flights:
                self._pool.begin(self._run, flight)
        return found

    def bytes_of(self, flight: Flight, place: Place) -> memoryview:
        """The stored bytes of a place of the flight, which is left. Waits for them, or makes the GET. Raises (F4)."""
        is_mine = self._run(flight)
        found = self._wait(flight, place)
        if is_mine or not isinstance(found, BaseException):
            return _given(found)
        [again] = self.join([place], is_scan=flight.is_scan)
        if again is None:  # the cache has it by now, and only readers ask that
            return memoryview(self._store.get_range(place.key, place.chunk.offset, place.chunk.stored_length))
        self._run(again)
        return _given(self._wait(again, place))

    def leave(self, flight: Flight) -> None:
        with self._lock:
            flight.users -= 1
            if flight.users == 0 and flight.state is not _State.RUNNING:
                self._free(flight)

    def forget(self, place: Place) -> None:
        """The bytes that came for it are damaged: nobody else joins their flight."""
        with self._lock:
            flight = self._flights.get(place.id)
            if flight is not None and flight.state is _State.DONE:
                self._unlist(flight)

    def _wait(self, flight: Flight, place: Place) -> memoryview | BaseException:
        """What became of it. Raises only what interrupts this thread."""
        try:
            flight.done.wait()
            if flight.error is not None:
                return flight.error
            offset = place.chunk.offset - flight.start
            return memoryview(flight.body)[offset : offset + place.chunk.stored_length]
        finally:
            self.leave(flight)

    def _run(self, flight: Flight) -> bool:
        """Make the flight's GET unless somebody did, or nobody wants it. Returns whether this call did."""
        with self._lock:
            if flight.state is not _State.WAITING:
                return False
            flight.state = _State.RUNNING
        admitted: list[Place] = []
        try:
            admitted = self._reserve(flight)
            flight.body = self._store.get_range(flight.places[0].key, flight.start, flight.length)
        except BaseException as error:  # it goes to whoever waits
            flight.error = error
        self._hand_to_cache(flight, admitted)
        with self._lock:
            flight.state = _State.DONE
            if flight.error is not None:
                self._unlist(flight)
            if flight.users == 0:
                self._free(flight)
        flight.done.set()
        # Whoever needs a first chunk does not wait for the disk.
        if admitted and (flight.is_scan or not self._pool.begin(self._write_to_cache, admitted)):
            self._write_to_cache(admitted)
        return True

    def _reserve(self, flight: Flight) -> list[Place]:
        if self._cache is None:
            return []
        cache = self._cache
        return [p for p in flight.places if cache.admit(p.id, p.chunk.stored_length, is_scan=flight.is_scan)]

    def _hand_to_cache(self, flight: Flight, admitted: list[Place]) -> None:
        for place in admitted:
            assert self._cache is not None  # noqa: S101 - or nothing was admitted
            offset = place.chunk.offset - flight.start
            if flight.error is None:
                self._cache.hand_over(place.id, flight.body[offset : offset + place.chunk.stored_length])
            else:
                self._cache.drop(place.id)

    def _write_to_cache(self, admitted: list[Place]) -> None:
        for place in admitted:
            assert self._cache is not None  # noqa: S101 - or nothing was admitted
            self._cache.write(place.id, place.chunk.xxh3)

    def _is_cached(self, place: Place) -> bool:
        return self._cache is not None and self._cache.has(place.id)

    def _free(self, flight: Flight) -> None:
        """The lock is held, and nobody wants it."""
        flight.state = _State.DONE
        self._unlist(flight)
        self._budget.give(flight.length)

    def _unlist(self, flight: Flight) -> None:
        for place in flight.places:
            if self._flights.get(place.id) is flight:
                del self._flights[place.id]


def _given(found: memoryview | BaseException) -> memoryview:
    if isinstance(found, BaseException):
        raise found
    return found


def _is_near(before: Place, place: Place) -> bool:
    gap_bytes = place.chunk.offset - before.chunk.offset - before.chunk.stored_length
    return before.key == place.key and 0 <= gap_bytes <= _GAP_BYTES
