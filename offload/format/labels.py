"""User metadata of our objects, for whoever lists a bucket, and for Apache Pulsar's reader. Names in lower case.

    name                                       data and index object
    s3managedledgeroffloaderformatversion      1, with codec none only
    role                                       data or index
    seglog-format                              1
    seglog-topic                               topic, with @BRANCH for a branch
    seglog-first-seq, seglog-last-seq          seqs, inclusive
    seglog-version                             of the software that wrote it

M1  Pulsar's reader refuses an object without the first one, or with another value. A zstd object must not be read as a
    plain one, so it does not carry it.
M2  Nothing of ours reads these back: the index object says the same, under a hash.

Source: PIP-17; Apache Pulsar's code for the names. This module does no I/O.
"""

from __future__ import annotations

import functools
import importlib.metadata

from catalog.format.commit import Codec

__all__ = ["FORMAT", "object_metadata", "software_version"]

FORMAT = 1


@functools.cache
def software_version() -> str:
    """Of the installed distribution."""
    return importlib.metadata.version("seglog")


def object_metadata(role: str, topic: str, first_seq: int, last_seq: int, codec: Codec) -> dict[str, str]:
    """`role` is `data` or `index`. It must be given when the object, or its multipart upload, is created."""
    metadata = {
        "role": role,
        "seglog-format": str(FORMAT),
        "seglog-topic": topic,
        "seglog-first-seq": str(first_seq),
        "seglog-last-seq": str(last_seq),
        "seglog-version": software_version(),
    }
    if codec is Codec.NONE:
        metadata["s3managedledgeroffloaderformatversion"] = "1"
    return metadata
