"""Fetches of chunks: all readers that want a chunk at the same time share one GET.

    state     meaning                                          next step
    WAITING   registered, and a reader wants it                run, by a pool thread or by a reader that needs it first
    RUNNING   the GET is under way; cache room is reserved     done
    DONE      the bytes or an error are there                  leave, by each reader; the last one frees the flight

FETCH-1  A flight is one GET for chunks of one object with at most `_GAP_BYTES` between them.
FETCH-2  If a chunk is in a flight, a reader that wants the chunk joins the flight. If no pool thread has run the flight
    when the reader needs it, the reader runs it. So no reader waits for a full pool.
FETCH-3  A flight that no reader wants any more is not run. A flight that runs already is left to end, at the store's
    timeout at the latest.
FETCH-4  If a reader ran a flight because it needed the bytes, it gets the flight's error. The other readers ask once
    more, for their chunk alone.
FETCH-5  A flight's bytes are held from the registration until the last reader leaves. Bytes that a reader needs now
    may exceed the limit. Reads ahead wait for room below it.
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
from offload.read.cache import ChunkCache
from offload.read.pool import Pool
from seglog.process.ownership import Owned

__all__ = ["Flight", "Flights", "Place"]

_GAP_BYTES = 64 * 1024  # a block's header and padding, or a chunk that the cache has: cheaper than another GET


@dataclass(frozen=True, slots=True)
class Place:
    """A chunk of a segment, and where it is. The reader wants its records from `first` to `last`."""

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
    """One GET. Only `Flights` reads and writes its fields."""

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
    """The flights of all readers of one store."""

    def __init__(self, store: ObjectStore, cache: ChunkCache | None, limit_bytes: int, pool: Pool) -> None:
        self._store = store
        self._cache = cache
        self._limit_bytes = limit_bytes
        self._pool = pool
        self._lock = threading.Lock()
        self.held_bytes = 0
        self._flights: dict[tuple[bytes, int], Flight] = {}

    def join(self, places: Sequence[Place], *, is_scan: bool) -> list[Flight | None]:
        """Return a flight for each place, new or shared; None for a place that the cache has.

        The caller must leave a flight as often as the result contains it. If `is_scan`, the cache need not keep the
        chunks (POLICY-1).
        """
        found = self._join(places, is_scan=is_scan, is_ahead=False)
        assert found is not None  # noqa: S101 - only what is ahead may find no room
        return found

    def join_ahead(self, places: Sequence[Place]) -> list[Flight | None] | None:
        """Return flights for places that the reader does not need yet. The pool runs them. Return None if there
        is no room.
        """
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
            if is_ahead and self.held_bytes + size_bytes > self._limit_bytes:
                return None
            self.held_bytes += size_bytes
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
        """Return the stored bytes of a place of the flight, and leave the flight.

        Waits for the bytes, or makes the GET. Raises the error of the GET (FETCH-4).
        """
        is_mine = self._run(flight)
        found = self._wait(flight, place)
        if is_mine or not isinstance(found, BaseException):
            return _given(found)
        [again] = self.join([place], is_scan=flight.is_scan)
        if again is None:  # the cache has it by now, and only `ReadAhead` asks the cache
            return memoryview(self._store.get_range(place.key, place.chunk.offset, place.chunk.stored_length))
        self._run(again)
        return _given(self._wait(again, place))

    def leave(self, flight: Flight) -> None:
        with self._lock:
            flight.users -= 1
            if flight.users == 0 and flight.state is not _State.RUNNING:
                self._free(flight)

    def forget(self, place: Place) -> None:
        """Unlist the flight of a place whose bytes are damaged, so that no other reader joins it."""
        with self._lock:
            flight = self._flights.get(place.id)
            if flight is not None and flight.state is _State.DONE:
                self._unlist(flight)

    def _wait(self, flight: Flight, place: Place) -> memoryview | BaseException:
        """Return the place's bytes or the flight's error. Raises only what interrupts this thread."""
        try:
            flight.done.wait()
            if flight.error is not None:
                return flight.error
            offset = place.chunk.offset - flight.start
            return memoryview(flight.body)[offset : offset + place.chunk.stored_length]
        finally:
            self.leave(flight)

    def _run(self, flight: Flight) -> bool:
        """Make the flight's GET, unless another thread did or no reader wants it. Return whether this call made it."""
        with self._lock:
            if flight.state is not _State.WAITING:
                return False
            flight.state = _State.RUNNING
        admitted: list[Place] = []
        try:
            admitted = self._reserve(flight)
            flight.body = self._store.get_range(flight.places[0].key, flight.start, flight.length)
        except BaseException as error:  # the waiting readers get it
            flight.error = error
        self._hand_to_cache(flight, admitted)
        with self._lock:
            flight.state = _State.DONE
            if flight.error is not None:
                self._unlist(flight)
            if flight.users == 0:
                self._free(flight)
        flight.done.set()
        # A reader that needs a first chunk does not wait for the disk.
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
        """Free the flight. The caller holds the lock, and no reader wants the flight."""
        flight.state = _State.DONE
        self._unlist(flight)
        self.held_bytes -= flight.length

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
