"""Test the content encodings of a body: round trips, each truncation, garbage, and bombs."""

from __future__ import annotations

import gzip
import random

import pytest
import zstandard

from offload.daemon.http.request_body import InvalidEncoding, decoder_of
from offload.errors import Refused
from tests.work import seed_of

DATA = bytes(range(256)) * 500
ENCODED = {
    "gzip": gzip.compress(DATA, mtime=0),
    "x-gzip": gzip.compress(DATA[:100], mtime=0) + gzip.compress(DATA[100:], mtime=0),
    "ZSTD": zstandard.compress(DATA),
    "zstd": zstandard.compress(DATA[:100]) + b"\x50\x2a\x4d\x18\x02\x00\x00\x00xx" + zstandard.compress(DATA[100:]),
}


def decoded(encoding: str, *pieces: bytes) -> bytes:
    decoder = decoder_of(encoding)
    assert decoder is not None
    found = b"".join(out for piece in pieces for out in decoder.feed(piece))
    decoder.end()
    return found


@pytest.mark.parametrize("encoding", ENCODED)
def test_a_body_is_decoded_however_its_bytes_come(encoding: str) -> None:
    body, rng = ENCODED[encoding], random.Random(seed_of(f"encoding {encoding}"))
    assert decoded(encoding, body) == DATA
    assert decoded(encoding, *(body[place : place + 1] for place in range(len(body)))) == DATA
    for _ in range(20):
        at = rng.randrange(len(body))
        assert decoded(encoding, body[:at], body[at:]) == DATA


@pytest.mark.parametrize("encoding", ["gzip", "ZSTD"])
def test_a_body_that_is_cut_off_or_has_garbage_behind_it_is_refused(encoding: str) -> None:
    body = ENCODED[encoding]
    for end in range(len(body)):
        with pytest.raises(InvalidEncoding):
            decoded(encoding, body[:end])
    for garbage in (b"x", b"\x00", b"garbage behind the end", body[:5]):
        with pytest.raises(InvalidEncoding):
            decoded(encoding, body, garbage)
        with pytest.raises(InvalidEncoding):
            decoded(encoding, body + garbage)


@pytest.mark.parametrize("encoding", ["gzip", "ZSTD"])
def test_a_flipped_byte_never_gives_other_bytes_of_a_checked_body(encoding: str) -> None:
    body = ENCODED[encoding] if encoding == "gzip" else zstandard.ZstdCompressor(write_checksum=True).compress(DATA)
    for at in range(0, len(body), 7):
        changed = bytearray(body)
        changed[at] ^= 0x10
        try:
            found = decoded(encoding, bytes(changed))
        except InvalidEncoding:
            continue
        assert found == DATA  # a byte of a header without a meaning for the data, such as the time


@pytest.mark.long
def test_a_step_of_a_bomb_takes_little_memory() -> None:
    bombs = {
        "gzip": gzip.compress(bytes(64 << 20), mtime=0),
        "zstd": zstandard.ZstdCompressor(level=19).compress(bytes(256 << 20)),
    }
    for encoding, bomb in bombs.items():
        assert len(bomb) < 1 << 20
        decoder = decoder_of(encoding)
        assert decoder is not None
        assert max(len(piece) for piece in decoder.feed(bomb)) <= 8 << 20


def test_a_window_of_zstd_is_bounded() -> None:
    wide = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    encoder = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    with pytest.raises(InvalidEncoding, match="memory"):
        decoded("zstd", encoder.compress(random.Random(1).randbytes(300_000)) + encoder.flush())


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, zstd", "gzip;q=1"])
def test_other_encodings_are_refused(encoding: str) -> None:
    assert decoder_of("") is None
    assert decoder_of("Identity") is None
    with pytest.raises(Refused) as refused:
        decoder_of(encoding)
    assert refused.value.status == 415
