"""Changed objects for a decoder, drawn from valid ones, and what the decoder takes of them."""

from __future__ import annotations

import tracemalloc
from random import Random

from tests.offload.fuzz_targets import SEEDS, run

__all__ = ["MUTATIONS", "mutated", "run_mutations"]

MUTATIONS = 600
ALLOCATION_FIXED, ALLOCATION_FACTOR = 4 << 20, 400
NUMBERS = (0, 1, 127, 128, 255, 1 << 15, (1 << 16) - 1, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)


def mutated(seed: bytes, random: Random) -> bytes:
    """Return the bytes with one to four changes.

    A change is a bit, a byte, a number in any width and order, a cut, or a piece doubled, removed or moved.
    """
    data = bytearray(seed)
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(data) + 1)
        match random.randrange(7):
            case 0 if place < len(data):
                data[place] ^= 1 << random.randrange(8)
            case 1 if place < len(data):
                data[place] = random.randrange(256)
            case 2:
                width = random.choice((1, 2, 4, 8))
                number = random.choice(NUMBERS) % (1 << 8 * width)
                data[place : place + width] = number.to_bytes(width, random.choice(("big", "little")))
            case 3:
                del data[place:]
            case 4:
                data[place:place] = data[place : place + random.randrange(1, 64)]
            case 5:
                del data[place : place + random.randrange(1, 64)]
            case 6:
                start = random.randrange(len(data) + 1)
                data[place : place + 16] = data[start : start + 16]
    return bytes(data)


def run_mutations(name: str, count: int, seed: int) -> int:
    """Return the number of accepted inputs. Raise for a fault, and for an allocation out of proportion."""
    random = Random(seed)
    taken = 0
    tracemalloc.start()
    for _ in range(count):
        data = mutated(random.choice(SEEDS[name]), random)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        taken += run(name, data)
        used = tracemalloc.get_traced_memory()[1] - before
        if used > ALLOCATION_FIXED + ALLOCATION_FACTOR * len(data):
            raise AssertionError(f"{len(data)} bytes made it take {used}: {data.hex()}")
    return taken
