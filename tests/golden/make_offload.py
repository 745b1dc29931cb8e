"""Writes the golden objects of the archive: `python -m tests.golden.make_offload`.

They are files that a release wrote. A change here that alters their bytes is a change of format: it needs a new version
number in the format, and the old files stay, with their test.
"""

from __future__ import annotations

from pathlib import Path

from catalog.format.commit import Codec
from tests.offload.samples import EncodedObject, Sample, encode_object, frames_of_samples

DIRECTORY = Path(__file__).parent
SAMPLES = [
    Sample(b"plain"),
    Sample(b"", tag="", node=""),
    Sample(b"tagged", tag="eu"),
    Sample(b"\x00\xff\r\n", tag="gr\u00fc\u00df", node="node-1"),
    Sample(b"", tag="eu", deleted=True),
    *(Sample(bytes([97 + n % 26]) * n, tag="eu" if n % 3 else None) for n in range(40)),
]
FRAMES = frames_of_samples(SAMPLES, first_seq=1001)


def make(codec: Codec) -> EncodedObject:
    return encode_object(FRAMES, codec, block_size=1024, chunk_bytes=512)


if __name__ == "__main__":
    for codec in Codec:
        made = make(codec)
        (DIRECTORY / f"offload_{codec.name.lower()}.data").write_bytes(made.data)
        (DIRECTORY / f"offload_{codec.name.lower()}.index").write_bytes(made.index.body)
