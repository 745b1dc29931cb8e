"""XXH3-64 of thousands of inputs of 25 bytes at once, on arrays.

A call of the xxhash library takes 25 bytes, and costs more than the hash itself. Here the inputs are four arrays of
words, as the algorithm reads an input of 17 to 32 bytes:

    first    bytes 0 to 8        third    bytes 9 to 17
    second   bytes 8 to 16       fourth   bytes 17 to 25

Source: the specification of XXH3, "medium-size inputs", with seed 0. No I/O: arrays in, arrays out.
"""

from __future__ import annotations

from seglog.format.arrays import NDArray, np

__all__ = ["hashes_of_25_bytes"]

# The first 32 bytes of the default secret, as words.
_SECRET = (0xBE4BA423396CFEB8, 0x1CAD21F72C81017C, 0xDB979083E96DD4DE, 0x1F67B3B7A4A44072)
_START = 25 * 0x9E3779B185EBCA87 % 2**64
_PRIME = 0x165667919E3779F9
_LOW = 0xFFFFFFFF


def hashes_of_25_bytes(
    first: NDArray[np.uint64], second: NDArray[np.uint64], third: NDArray[np.uint64], fourth: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Return the hash of each input."""
    secret = [np.uint64(word) for word in _SECRET]
    hashes = _folded_product(first ^ secret[0], second ^ secret[1])
    hashes += _folded_product(third ^ secret[2], fourth ^ secret[3])
    hashes += np.uint64(_START)
    hashes ^= hashes >> 37
    hashes *= np.uint64(_PRIME)
    hashes ^= hashes >> 32
    return hashes


def _folded_product(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the lower half of each product of 128 bits, XORed with its upper half."""
    left_low, right_low = left & _LOW, right & _LOW
    left_high, right_high = left >> 32, right >> 32
    middle = left_low * right_low
    middle >>= 32
    crossed = left_high * right_low
    middle += crossed & _LOW
    middle += left_low * right_high
    middle >>= 32
    crossed >>= 32
    middle += crossed
    left_high *= right_high
    middle += left_high
    middle ^= left * right
    return middle
