"""User metadata of our objects, for a person who lists a bucket, and for Apache Pulsar's reader. Names in lower case.

    name                                       data and index object
    s3managedledgeroffloaderformatversion      1, with codec none only
    role                                       data or index
    seglog-format                              1
    seglog-topic                               topic, with @BRANCH for a branch
    seglog-first-seq, seglog-last-seq          seqs, inclusive; the data object of a load has no last one, because it
                                               is not known when the upload begins
    seglog-version                             of the software that wrote it

LABEL-1  Pulsar's reader refuses an object without the first name, or with another value of it.
    A zstd object does not carry it, so that Pulsar does not read it as a plain one.
LABEL-2  Our own readers never use this metadata: the index object says the same, under a hash.

Source: PIP-17; Apache Pulsar's code for the names. This module does no I/O.
"""

from __future__ import annotations

import functools

from catalog.format.commit import Codec

FORMAT = 1


@functools.cache
def software_version() -> str:
    """Return the version of the installed distribution."""
    from importlib.metadata import version  # only a write needs it, and it imports the email package

    return version("seglog")


def object_metadata(role: str, topic: str, first_seq: int, last_seq: int | None, codec: Codec) -> dict[str, str]:
    """Return the metadata of a new object, or of its multipart upload. `role` is `data` or `index`.

    `last_seq` is None if it is not known yet.
    """
    metadata = {
        "role": role,
        "seglog-format": str(FORMAT),
        "seglog-topic": topic,
        "seglog-first-seq": str(first_seq),
        "seglog-version": software_version(),
    }
    if last_seq is not None:
        metadata["seglog-last-seq"] = str(last_seq)
    if codec is Codec.NONE:
        metadata["s3managedledgeroffloaderformatversion"] = "1"
    return metadata
