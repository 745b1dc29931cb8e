"""The options of Spark's writer, as a user gives them. This module does no I/O.

    option          default   meaning
    path            -         the remote, s3://bucket/prefix or file:///path: the argument of save()
    topic           -         the topic; without it, each row names its topic in the column topic
    branch          main      the branch; one that does not exist is forked from the newest state of main
    idempotencyKey  -         a job whose key the branch has changes nothing; a stream makes its own keys
    codec           -         zstd or none, which Apache Pulsar reads; without it, the codec of the topic, or zstd
    takeOver        false     true writes where a log writes, too, and fences that log, if the topic has a
                              tail_interval_s and the log has not committed for twice that; force asks for neither
    kmsKeyId        -         the KMS key of all objects of the job; without it, the bucket chooses the encryption

The provider in the JVM adds `partitionRows`, the rows of each partition as JSON: [[0, 12], [2, 7]]. A table of a
catalog adds `mustExist`, so that an INSERT makes no branch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from offload.errors import InvalidOption
from offload.load import LoadRequest
from offload.settings import CODEC_NAMES
from offload.spark.option_texts import OptionTexts

_WRITE_OPTIONS = ("path", "topic", "branch", "idempotencyKey", "codec", "takeOver", "kmsKeyId")
_ROWS = "partitionRows"
_MUST_EXIST = "mustExist"
_OF_SPARK = frozenset({"checkpointlocation", "queryname", "reader"})
_LONGEST_KEY = 256


def parse_write_options(given: Mapping[str, str]) -> tuple[str, LoadRequest]:
    """Return the remote and the request. Raises `InvalidOption`."""
    known = {name.lower(): name for name in (*_WRITE_OPTIONS, _ROWS, _MUST_EXIST)}
    texts: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() in _OF_SPARK:
            continue
        if name.lower() not in known:
            raise InvalidOption.unknown(name, _WRITE_OPTIONS)
        texts[known[name.lower()]] = value
    found = OptionTexts(texts)
    url = found.required("path", 'save("s3://bucket/prefix")')
    topic = found.required("topic", 'option("topic", "orders")')
    take_over = found.choice("takeOver", ("false", "true", "force"))
    request = LoadRequest(
        topic=topic,
        branch=found.get("branch") or "main",
        key=_key(found),
        rows=_rows(found),
        take_over=take_over in {"true", "force"},
        unless_running=take_over == "true",
        must_exist=found.choice(_MUST_EXIST, ("false", "true")) == "true",
        codec=found.choice("codec", tuple(CODEC_NAMES)),
        kms_key_id=found.get("kmsKeyId") or "",
    )
    return url, request


def _key(found: OptionTexts) -> str:
    key = found.get("idempotencyKey") or ""
    if len(key) > _LONGEST_KEY:
        raise InvalidOption("idempotencyKey", f"it has {len(key)} characters, and may have {_LONGEST_KEY}")
    return key


def _rows(found: OptionTexts) -> tuple[tuple[int, int], ...] | None:
    text = found.get(_ROWS)
    if text is None:
        return None
    try:
        return tuple(sorted((int(partition), int(rows)) for partition, rows in json.loads(text)))
    except (TypeError, ValueError) as error:
        raise InvalidOption(_ROWS, f"{text!r} is not [[partition, rows], …]") from error
